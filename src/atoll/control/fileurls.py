"""Signed addresses of files: who may ask for one, how long it lives, and the key that signs it."""

from __future__ import annotations

import hashlib
import hmac
import math
import secrets
from datetime import UTC, datetime

from atoll.control.authz import Principal
from atoll.control.clock import Clock
from atoll.model import limits
from atoll.model.errors import InvalidArgument
from atoll.wire import signed
from atoll.wire.signed import FileGrant


class FileUrls:
    """Signs and verifies with a key of its own, derived from the server's secret for links.

    Without a secret the addresses live as long as the server. Where the secret was replaced, old ones are void.
    """

    def __init__(self, link_secret: bytes, clock: Clock) -> None:
        self._secret = hmac.digest(link_secret or secrets.token_bytes(32), b"addresses of files", hashlib.sha256)
        self._clock = clock

    def sign(
        self, principal: Principal, sandbox_id: str, method: str, path: str, user: str | None, expires_s: float | None
    ) -> tuple[str, datetime]:
        """The text of an address, and when it ends."""
        if method not in signed.METHODS:
            raise InvalidArgument("a signed address is for GET or for PUT", code="invalid_method")
        lives_s = limits.FILE_URL_S_DEFAULT if expires_s is None else expires_s
        if not 1 <= lives_s <= limits.FILE_URL_S_MAX:
            raise InvalidArgument(f"expires_s must be between 1 and {limits.FILE_URL_S_MAX:.0f}", code="invalid_expiry")
        if not path or "\0" in path or len(path.encode("utf-8", "surrogatepass")) >= limits.PATH_BYTES_MAX:
            raise InvalidArgument("path is empty, too long or holds a NUL byte", code="invalid_argument")
        if user is not None and len(user) > limits.FILE_NAME_BYTES_MAX:
            raise InvalidArgument("user is too long", code="invalid_argument")
        expires_at_s = math.ceil(self._clock.now().timestamp() + lives_s)
        grant = FileGrant(principal.owner, principal.key_id, sandbox_id, method, path, user, expires_at_s)
        return signed.sign(self._secret, grant), datetime.fromtimestamp(expires_at_s, UTC)

    def verify(self, text: str, method: str) -> FileGrant:
        return signed.verify(self._secret, text, method, self._clock.now().timestamp())

    @staticmethod
    def principal(grant: FileGrant) -> Principal:
        """Whoever holds the address acts for the owner who asked for it, and may do what its method says."""
        return Principal(grant.owner, grant.key_id, frozenset({"read" if grant.method == "GET" else "write"}))
