"""Tokens of one volume: what opens its files to a caller who has no API key.

They are derived from the server's secret and the volume's id, so nothing has to be kept, and they last as long as the
volume does. There are two: one reads and writes, one only reads.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

from atoll.control.authz import READ, WRITE, Principal
from atoll.control.store import volumes as rows
from atoll.control.store.engine import Store
from atoll.model.errors import Unauthenticated
from atoll.model.event import Shown


class VolumeTokens:
    """Mints and verifies with a key of its own; without a secret the tokens last as long as this process."""

    def __init__(self, secret: bytes, store: Store) -> None:
        self._secret = hmac.digest(secret or secrets.token_bytes(32), b"tokens of volumes", hashlib.sha256)
        self._store = store

    def mint(self, volume_id: str, *, writes: bool) -> str:
        named = volume_id if writes else f"{READ}:{volume_id}"  # no volume is called so: its id has no colon
        return hmac.new(self._secret, named.encode("utf-8", "surrogateescape"), hashlib.sha256).hexdigest()

    def _scopes(self, volume_id: str, token: str) -> frozenset[str]:
        """What a token allows; it takes the same time whichever it is."""
        given = token.encode("utf-8", "surrogateescape")
        writes, reads = (hmac.compare_digest(given, self.mint(volume_id, writes=one).encode()) for one in (True, False))
        return frozenset({READ, WRITE} if writes else {READ} if reads else ())

    async def admit(self, volume_id: str, token: str) -> Principal:
        """The volume's owner, by no key. Whether the volume or the token is wrong, the answer is the same."""
        scopes = self._scopes(volume_id, token)
        owner = await self._store.read(rows.owner_of, volume_id) if scopes else None
        if owner is None:
            raise Unauthenticated("the volume's token is missing or wrong", code="bad_volume_token")
        return Principal(owner, "", scopes, by=Shown.VOLUME)
