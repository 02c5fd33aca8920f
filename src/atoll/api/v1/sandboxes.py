"""/v1/sandboxes: create, list, show, move the deadline, kill."""

from __future__ import annotations

from datetime import datetime

import msgspec

from atoll.api.endpoint import Call, Endpoint, Nothing, Reply
from atoll.api.v1.events import aware
from atoll.control.service import REPEATED, Query
from atoll.model import limits
from atoll.model.errors import Conflict, InvalidArgument, LimitExceeded, NotFound, OutOfSpace, Unavailable
from atoll.model.lifecycle import State
from atoll.model.sandbox import Budget
from atoll.model.text import is_text
from atoll.wire.public import (
    SandboxBudget,
    SandboxCreate,
    SandboxCreated,
    SandboxDeadline,
    SandboxPage,
    SandboxView,
    StartLog,
)


class ListQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which sandboxes to list. `state` and `metadata` may be repeated; `metadata` is `key=value`."""

    state: list[State] = []
    template: str | None = None
    name: str | None = None
    metadata: list[str] = []
    created_after: datetime | None = None
    created_before: datetime | None = None
    count: bool = False
    limit: int = limits.PAGE_ITEMS_DEFAULT
    cursor: str | None = None

    def wanted(self) -> Query:
        pairs = [entry.partition("=") for entry in self.metadata]
        if not all(equals for _, equals, _ in pairs):
            raise InvalidArgument("metadata is given as key=value", code="invalid_query")
        metadata = {key: value for key, _, value in pairs}
        if not all(map(is_text, (self.template or "", self.name or "", *metadata, *metadata.values()))):
            raise InvalidArgument("a filter is no text", code="invalid_query")
        return Query(
            tuple(self.state),
            self.template,
            self.name,
            metadata,
            aware(self.created_after),
            aware(self.created_before),
            self.count,
        )


async def create(call: Call[SandboxCreate, Nothing]) -> Reply:
    """With the header `Idempotency-Key` a create that is repeated gives back the same sandbox, with status 200."""
    key = call.header(b"idempotency-key")
    sandbox, started = await call.control.sandbox_create(call.principal, call.body.spec(), key)
    call.is_about(sandbox.id)
    created = SandboxCreated(sandbox=SandboxView.of(sandbox), steps_ms=dict(started.steps_ms), way=started.way)
    return Reply(created, status=200 if started.way == REPEATED else 201)


async def list_page(call: Call[Nothing, ListQuery]) -> SandboxPage:
    query = call.query
    page = await call.control.sandbox_list(call.principal, query.wanted(), query.cursor, query.limit)
    items = [SandboxView.of(sandbox) for sandbox in page.items]
    return SandboxPage(items=items, next=page.next, total=page.total)


async def show(call: Call[Nothing, Nothing]) -> SandboxView:
    return SandboxView.of(await call.control.sandbox_get(call.principal, call.path["sandbox"]))


async def set_deadline(call: Call[SandboxDeadline, Nothing]) -> SandboxView:
    sandbox = await call.control.sandbox_set_deadline(call.principal, call.path["sandbox"], call.body.timeout_s)
    return SandboxView.of(sandbox)


async def set_budget(call: Call[SandboxBudget, Nothing]) -> SandboxView:
    """What has been used until now counts. One that was stopped because its budget was spent can be resumed then."""
    budget = Budget(call.body.seconds, call.body.money)
    sandbox = await call.control.sandbox_set_budget(call.principal, call.path["sandbox"], budget, call.body.on_budget)
    return SandboxView.of(sandbox)


async def start_log(call: Call[Nothing, Nothing]) -> StartLog:
    return StartLog(log=await call.control.sandbox_start_log(call.principal, call.path["sandbox"]))


async def kill(call: Call[Nothing, Nothing]) -> SandboxView:
    return SandboxView.of(await call.control.sandbox_kill(call.principal, call.path["sandbox"]))


PATH = "/v1/sandboxes"
ONE = "/v1/sandboxes/{sandbox}"

ENDPOINTS = (
    Endpoint(
        "POST",
        PATH,
        "Create a sandbox",
        create,
        body=SandboxCreate,
        answer=SandboxCreated,
        status=201,
        errors=(InvalidArgument, NotFound, Conflict, LimitExceeded, Unavailable, OutOfSpace),
    ),
    Endpoint("GET", PATH, "List sandboxes, newest first", list_page, query=ListQuery, answer=SandboxPage),
    Endpoint(
        "GET", ONE, "Show a sandbox, by id or by the name of a live one", show, answer=SandboxView, errors=(NotFound,)
    ),
    Endpoint(
        "DELETE",
        ONE,
        "Kill a sandbox; one that has ended is shown as it is",
        kill,
        answer=SandboxView,
        errors=(NotFound,),
    ),
    Endpoint(
        "GET",
        ONE + "/start-log",
        "Show how the start of a sandbox went that failed",
        start_log,
        answer=StartLog,
        errors=(NotFound,),
    ),
    Endpoint(
        "PUT",
        ONE + "/budget",
        "Change the budget of a sandbox",
        set_budget,
        body=SandboxBudget,
        answer=SandboxView,
        errors=(InvalidArgument, NotFound, Conflict),
    ),
    Endpoint(
        "PUT",
        ONE + "/deadline",
        "Move the deadline of a sandbox",
        set_deadline,
        body=SandboxDeadline,
        answer=SandboxView,
        errors=(InvalidArgument, NotFound, Conflict),
    ),
)
