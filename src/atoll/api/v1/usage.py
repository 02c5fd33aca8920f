"""/v1/usage: what has been used, by group, with what it costs."""

from __future__ import annotations

import dataclasses
from datetime import datetime

import msgspec

from atoll.api.endpoint import Call, Endpoint, Nothing
from atoll.api.v1.events import aware
from atoll.api.v1.keys import owner_of
from atoll.control.authz import OPERATOR
from atoll.control.usage import UsageFilter, UsageRow
from atoll.model import limits
from atoll.model.errors import Forbidden, InvalidArgument
from atoll.wire.public import UsageReport, UsageView


class UsageQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which usage. `by` is day, template, sandbox, key, label:<key>, or tenant, which is for the operator.

    `metadata` is `key=value`, repeatable.
    """

    by: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    template: str | None = None
    sandbox: str | None = None
    metadata: list[str] = []
    tenant: str | None = None


async def report(call: Call[Nothing, UsageQuery]) -> UsageReport:
    query = call.query
    pairs = [entry.partition("=") for entry in query.metadata]
    if not all(equals for _, equals, _ in pairs):
        raise InvalidArgument("metadata is given as key=value", code="invalid_query")
    owner: str | None = owner_of(call.principal, query.tenant)
    if query.by == "tenant" and query.tenant is None:
        call.principal.check(OPERATOR)
        owner = None
    wanted = UsageFilter(
        owner,
        aware(query.since),
        aware(query.until),
        query.template,
        query.sandbox,
        {key: value for key, _, value in pairs},
        query.by,
    )
    accounts = call.control.accounts
    found = await accounts.usage.query(wanted)
    return UsageReport(
        by=query.by,
        since=query.since,
        until=query.until,
        currency=accounts.options.currency,
        items=[_view(row) for row in found[: limits.USAGE_ROWS_MAX]],
        truncated=len(found) > limits.USAGE_ROWS_MAX,
    )


def _view(row: UsageRow) -> UsageView:
    amounts = dataclasses.asdict(row.sum.usage)
    return UsageView(group=row.sum.group, sandboxes=row.sum.sandboxes, money=round(row.money, 6), **amounts)


ENDPOINTS = (
    Endpoint(
        "GET",
        "/v1/usage",
        "Sum up what has been used",
        report,
        query=UsageQuery,
        answer=UsageReport,
        errors=(InvalidArgument, Forbidden),
    ),
)
