"""/v1/status: how the server is, for people."""

from __future__ import annotations

from atoll import __version__
from atoll.api.endpoint import Call, Endpoint, Nothing
from atoll.api.v1.node import node
from atoll.control.status import warnings
from atoll.wire.public import StatusView


async def show(call: Call[Nothing, Nothing]) -> StatusView:
    control, principal = call.control, call.principal
    # The operator sees the whole server, everybody else their own part of it.
    counts = await control.sandbox_counts(None if principal.is_operator else principal.owner)
    usage = control.accounts.usage
    month = await usage.of_month(principal)
    money = usage.prices.cost(month)
    templates = len(await control.templates(principal))
    return StatusView(
        version=__version__,
        tenant=principal.owner,
        key_id=principal.key_id,
        scopes=sorted(principal.scopes),
        sandboxes=counts,
        node=await node(call),
        month_s=month.wall_s,
        month_money=round(money, 6),
        currency=control.accounts.options.currency,
        warnings=warnings(control.node_status(), principal.tenant_quota, month.wall_s, money, templates),
    )


ENDPOINTS = (Endpoint("GET", "/v1/status", "Show how the server is", show, answer=StatusView),)
