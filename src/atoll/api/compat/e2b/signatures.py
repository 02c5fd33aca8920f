"""Signed addresses of files as E2B's clients make them, from a sandbox's access token; pure."""

from __future__ import annotations

import base64
import hashlib
import hmac

from atoll.model.errors import Unauthenticated


def check(given: str, expiration: str, path: str, operation: str, user: str, access_token: str, now_s: float) -> None:
    """Whether a signature of a file's address is right; Unauthenticated, in the words that clients know, if not."""
    if not given:
        raise Unauthenticated("missing signature query parameter")
    if not matches(given, expiration, path, operation, user, access_token):
        raise Unauthenticated("invalid signature")
    if expiration and int(expiration) < now_s:
        raise Unauthenticated("signature is already expired")


def matches(given: str, expiration: str, path: str, operation: str, user: str, access_token: str) -> bool:
    """Whether this signature was made with this token."""
    if expiration and not (expiration.isascii() and expiration.isdigit() and len(expiration) <= 15):
        return False
    words = [path, operation, user, access_token, *([expiration] if expiration else [])]
    digest = hashlib.sha256(":".join(words).encode("utf-8", "surrogateescape")).digest()
    right = "v1_" + base64.b64encode(digest).decode("ascii").rstrip("=")
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), right.encode("ascii"))
