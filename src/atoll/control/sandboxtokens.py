"""Tokens of one sandbox: what opens its inside, and what opens its ports, to a caller who has no API key.

They are derived from the server's secret and the sandbox's id, so nothing has to be kept, and they last as long as the
sandbox. Each kind opens one thing only.
"""

from __future__ import annotations

import hashlib
import hmac
from enum import StrEnum

from atoll.control.authz import Principal
from atoll.control.ledger import Ledger
from atoll.model import ids
from atoll.model.errors import NotFound, Unauthenticated
from atoll.model.event import Shown


class TokenKind(StrEnum):
    """What a token is for."""

    INSIDE = "inside"
    """Commands, files and code: all that an owner may do inside, and nothing to the sandbox itself."""
    PORTS = "ports"
    """Every port of the sandbox."""


class SandboxTokens:
    """Mints and verifies with one secret."""

    def __init__(self, secret: bytes, ledger: Ledger) -> None:
        self._secret = secret
        self._ledger = ledger

    def mint(self, kind: TokenKind, sandbox_id: str) -> str:
        return hmac.new(self._secret, f"sandbox-token:{kind}:{sandbox_id}".encode(), hashlib.sha256).hexdigest()

    def opens(self, kind: TokenKind, sandbox_id: str, token: str) -> bool:
        """Whether this is the token; it takes the same time wherever it differs."""
        return hmac.compare_digest(token.encode("utf-8", "surrogateescape"), self.mint(kind, sandbox_id).encode())

    async def principal(self, sandbox_id: str, by: str = Shown.SANDBOX) -> Principal:
        """Who acts inside a sandbox for a caller who was let in without a key: its owner, by what was shown."""
        record = await self._ledger.record(sandbox_id) if ids.is_id(ids.SANDBOX, sandbox_id) else None
        if record is None:
            raise NotFound("the sandbox was not found", code="sandbox_not_found")
        return Principal(record.owner, "", frozenset({"read", "write"}), by=by)

    async def admit(self, sandbox_id: str, **tokens: str) -> Principal:
        """The owner, if one of the tokens, by kind, opens the sandbox."""
        principal = await self.principal(sandbox_id)
        if not any(self.opens(TokenKind(kind), sandbox_id, token) for kind, token in tokens.items() if token):
            raise Unauthenticated("the access token is missing or wrong", code="bad_sandbox_token")
        return principal

    def ids_live(self) -> list[str]:
        """Every live sandbox, of any owner: for an address that is signed with a token but names no sandbox."""
        return self._ledger.live_ids()
