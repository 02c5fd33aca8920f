"""Who is calling: the key in the request's headers."""

from __future__ import annotations

from starlette.types import Scope

from atoll.control.service import Control, Principal
from atoll.model.errors import Unauthenticated

ANONYMOUS = Principal(owner="", key_id="", scopes=frozenset())


async def principal_of(scope: Scope, control: Control) -> Principal:
    """The owner of the key in `Authorization: Bearer` or `X-API-Key`."""
    key = key_in(scope["headers"])
    if not key:
        raise Unauthenticated(
            "no API key was given", hint="Send it as `Authorization: Bearer <key>`; see the file `key` of the server."
        )
    return await control.authenticate(key)


def key_in(headers: list[tuple[bytes, bytes]]) -> str:
    """The key, or nothing. Header names are in lower case, as ASGI has them."""
    for name, value in headers:
        if name == b"authorization":
            scheme, _, rest = value.decode("latin-1").partition(" ")
            if scheme.lower() == "bearer":
                return rest.strip()
        elif name == b"x-api-key":
            return value.decode("latin-1").strip()
    return ""
