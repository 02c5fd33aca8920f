"""E2B's teams: the tenant of the caller's key is the one that it has."""

from __future__ import annotations

from typing import Final

from atoll.api import authn
from atoll.api.compat.e2b.ask import Ask, Operation


async def list_all(ask: Ask) -> None:
    """What the command line asks for when it is set up. The key in the answer is the one that was shown."""
    key = authn.key_in(ask.scope["headers"]) or ask.header(b"x-api-key")
    owner = ask.principal.owner
    await ask.answer([{"teamID": owner, "name": owner, "apiKey": key, "isDefault": True}])


async def health(ask: Ask) -> None:
    """That the API is there; whoever asks this by the name of the API's host has no other way to."""
    await ask.answer({"status": "ok"})


OPERATIONS: Final = (Operation("GET", "/teams", list_all), Operation("GET", "/health", health))
