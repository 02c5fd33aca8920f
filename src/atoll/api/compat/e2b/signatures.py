"""Signed addresses of files as E2B's clients make them, from a sandbox's access token; pure."""

from __future__ import annotations

import base64
import hashlib
import hmac

from atoll.model import limits
from atoll.model.errors import InvalidArgument, Unauthenticated


class Signed:
    """What an address says that was signed, and its signature; which token that was made with is tried.

    What is the same for every token is hashed once: where an address names no sandbox, the token of each is tried, for
    a caller who has shown nothing yet.
    """

    def __init__(self, given: str, expiration: str, path: str, operation: str, user: str) -> None:
        if max(len(path), len(user)) > limits.PATH_BYTES_MAX:
            raise InvalidArgument(f"a path has at most {limits.PATH_BYTES_MAX} bytes", code="invalid_query")
        self._given = given.encode("utf-8", "surrogateescape")
        self._expiration = expiration
        self._begun = hashlib.sha256(f"{path}:{operation}:{user}:".encode("utf-8", "surrogateescape"))

    def check(self, access_token: str, now_s: float) -> None:
        """Whether the signature is right; Unauthenticated, in the words that clients know, if not."""
        if not self._given:
            raise Unauthenticated("missing signature query parameter")
        if not self.matches(access_token):
            raise Unauthenticated("invalid signature")
        if self._expiration and int(self._expiration) < now_s:
            raise Unauthenticated("signature is already expired")

    def matches(self, access_token: str) -> bool:
        """Whether the signature was made with this token."""
        until = self._expiration
        if until and not (until.isascii() and until.isdigit() and len(until) <= 15):
            return False
        whole = self._begun.copy()
        whole.update(f"{access_token}:{until}".encode() if until else access_token.encode())
        right = "v1_" + base64.b64encode(whole.digest()).decode("ascii").rstrip("=")
        return hmac.compare_digest(self._given, right.encode("ascii"))
