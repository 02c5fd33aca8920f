"""Who is calling: the key in the request's headers, what it may do, and how fast it may ask."""

from __future__ import annotations

import math
from dataclasses import replace

import structlog
from starlette.types import Scope

from atoll.api.edge import Exchange, exchange_of
from atoll.control.service import Allowed, Control, Principal
from atoll.model.errors import Unauthenticated
from atoll.model.event import BEGUN, OK

ANONYMOUS = Principal(owner="", key_id="", scopes=frozenset())


async def principal_of(scope: Scope, control: Control, needs: str = "", key: str = "") -> Principal:
    """The owner of the key in `Authorization: Bearer` or `X-API-Key`, or of the given one, if it allows this."""
    key = key or key_in(scope["headers"])
    if not key:
        raise Unauthenticated(
            "no API key was given", hint="Send it as `Authorization: Bearer <key>`; see the file `key` of the server."
        )
    return admit(await control.authenticate(key, source_of(scope)), scope, control, needs or needed(scope))


async def admit_keyless(known: Principal, scope: Scope, control: Control, needs: str) -> Principal:
    """Let a caller in who acts for an owner without a key: within the owner's rate, and seen like every other."""
    return admit(await control.accounts.keys.with_quotas(known), scope, control, needs)


def admit(known: Principal, scope: Scope, control: Control, needs: str) -> Principal:
    """Let a caller in who has shown who it is: within its rate, if it may do this, and seen in the audit log."""
    exchange = exchange_of(scope)
    principal = replace(known, source=source_of(scope), request_id=exchange.request_id)
    structlog.contextvars.bind_contextvars(tenant=principal.owner, caller=principal.actor)
    target = str(scope.get("path_params", {}).get("sandbox", ""))
    if target:
        structlog.contextvars.bind_contextvars(sandbox_id=target[:80])
    try:
        control.request_admit(principal)
    finally:  # whoever is refused hears what it may ask, too
        allowed = control.accounts.rates.left(principal)
        exchange.headers += [] if allowed is None else rate_headers(allowed)
    if needs != "read":
        _audit(control, principal, scope, exchange, target)
    principal.check(needs)
    return principal


def needed(scope: Scope) -> str:
    """The scope that a request takes by its method."""
    return "read" if scope.get("method") in ("GET", "HEAD") else "write"


def _audit(control: Control, principal: Principal, scope: Scope, exchange: Exchange, target: str) -> None:
    """Have the request in the audit log when it is over, with how it ended; one that lasts when that is seen, too."""
    accounts = control.accounts
    action = f"{scope.get('method', 'WS')} {exchange.route}"

    def about() -> str:
        return target or exchange.sandbox or str(next(iter(scope.get("path_params", {}).values()), ""))

    def done(exchange: Exchange) -> None:
        accounts.underway.end(lasting)
        result = exchange.code or (OK if exchange.status < 400 else str(exchange.status))
        detail = {"lasted_s": str(round(lasting.lasted_s, 3))} if lasting.told else None
        accounts.events.note(principal, action, about(), result, detail)

    lasting = accounts.underway.begin(lambda: accounts.events.note(principal, action, about(), BEGUN))
    exchange.done = done


def rate_headers(allowed: Allowed) -> list[tuple[bytes, bytes]]:
    """What a caller may still ask, in the headers that clients know."""
    values = {
        b"ratelimit-limit": allowed.most,
        b"ratelimit-remaining": allowed.left,
        b"ratelimit-reset": math.ceil(allowed.full_in_s),
    }
    return [(name, str(value).encode("ascii")) for name, value in values.items()]


def source_of(scope: Scope) -> str:
    """The address that a request came from."""
    return str((scope.get("client") or ("",))[0])


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
