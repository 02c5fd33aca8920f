"""/v1/sandboxes/{sandbox}/contexts: interpreters that keep their state, and the code that runs in them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from atoll.api.endpoint import STREAMED, Call, Endpoint, Nothing, Reply, Streamed
from atoll.api.stream import send_events, until_disconnected
from atoll.api.v1 import executionwords
from atoll.api.v1.sandboxes import ONE as SANDBOX
from atoll.control.service import Guest
from atoll.model import limits
from atoll.model.errors import Conflict, DeadlineExceeded, GuestFailed, InvalidArgument, NotFound, TooLarge
from atoll.wire import codec
from atoll.wire import stream as encodings
from atoll.wire.node import GuestStream
from atoll.wire.public.contexts import (
    ContextCreate,
    ContextInterrupt,
    ContextInterrupted,
    ContextList,
    ContextView,
    ExecutionEvent,
    ExecutionStart,
    ExecutionStarted,
)


class StartQuery(msgspec.Struct, forbid_unknown_fields=True):
    """With `follow=false` the answer is the execution's id, not the stream of its events."""

    follow: bool = True


class AttachQuery(msgspec.Struct, forbid_unknown_fields=True):
    """`skip` leaves out that many events after `started`: those that the caller has seen."""

    skip: int = 0
    interrupt_on_disconnect: bool = False


class _Interrupted(msgspec.Struct):
    interrupted: bool


async def create(call: Call[ContextCreate, Nothing]) -> ContextView:
    sandbox = await call.control.guest(call.principal, call.path["sandbox"])
    return executionwords.context(await sandbox.call("contexts.create", _given(call.body)))


async def list_all(call: Call[Nothing, Nothing]) -> ContextList:
    sandbox = await call.control.guest(call.principal, call.path["sandbox"])
    items, languages = executionwords.contexts(await sandbox.call("contexts.list", {}))
    return ContextList(items=items, languages=languages)


async def remove(call: Call[Nothing, Nothing]) -> None:
    sandbox = await call.control.guest(call.principal, call.path["sandbox"])
    await sandbox.call("contexts.remove", _named(call))


async def restart(call: Call[Nothing, Nothing]) -> ContextView:
    sandbox = await call.control.guest(call.principal, call.path["sandbox"])
    return executionwords.context(await sandbox.call("contexts.restart", _named(call)))


async def interrupt(call: Call[ContextInterrupt, Nothing]) -> ContextInterrupted:
    sandbox = await call.control.guest(call.principal, call.path["sandbox"])
    answer = await sandbox.call("contexts.interrupt", {**_named(call), **_given(call.body)})
    return ContextInterrupted(interrupted=codec.from_guest(answer, _Interrupted).interrupted)


async def execute(call: Call[ExecutionStart, StartQuery]) -> Reply | Streamed:
    params = {**_named(call), **_given(call.body)}
    sandbox = await call.control.guest(call.principal, call.path["sandbox"])
    if not call.query.follow:
        async with run(sandbox, {**params, "detach": True}) as stream:
            async for message in stream:
                return Reply(executionwords.started(getattr(message, "value", None)), 201)
        raise GuestFailed("the sandbox did not say which execution it started")

    async def follow() -> None:
        async with run(sandbox, params) as stream:
            await send_events(call, executionwords.events(stream), lines_only=True)

    await until_disconnected(call.receive, follow)
    return STREAMED


@asynccontextmanager
async def run(sandbox: Guest, params: Mapping[str, Any]) -> AsyncIterator[GuestStream]:
    """Code on its way; long code goes after the request, because a frame has a bound."""
    code = str(params["code"]).encode("utf-8", "surrogatepass")
    if len(code) > limits.CODE_BYTES_MAX:
        raise TooLarge(f"code has at most {limits.CODE_BYTES_MAX} bytes", hint="Write it to a file and run that.")
    uploads = len(code) > limits.CODE_INLINE_BYTES_MAX
    given = {**params, "code": None, "upload": True} if uploads else params
    async with sandbox.stream("contexts.run", given) as stream:
        if uploads:
            await stream.send(code)
            await stream.commit()
        yield stream


async def attach(call: Call[Nothing, AttachQuery]) -> Streamed:
    query: dict[str, Any] = msgspec.to_builtins(call.query)
    params = {**_named(call), "execution": call.path["execution"][:64], **query}
    sandbox = await call.control.guest(call.principal, call.path["sandbox"])

    async def follow() -> None:
        async with sandbox.stream("contexts.attach", params) as stream:
            await send_events(call, executionwords.events(stream), lines_only=True)

    await until_disconnected(call.receive, follow)
    return STREAMED


def _named(call: Call[Any, Any]) -> dict[str, Any]:
    return {"context": call.path["context"][:64]}


def _given(body: msgspec.Struct) -> dict[str, Any]:
    values: dict[str, Any] = msgspec.structs.asdict(body)
    return {key: value for key, value in values.items() if value is not None}


PATH = SANDBOX + "/contexts"
ONE = PATH + "/{context}"
EXECUTIONS = ONE + "/executions"
_EVENTS = {encodings.NDJSON: ExecutionEvent}
_ERRORS = (InvalidArgument, NotFound, Conflict, GuestFailed)
_STARTING = (*_ERRORS, DeadlineExceeded)

ENDPOINTS = (
    Endpoint(
        "POST", PATH, "Make a context", create, body=ContextCreate, answer=ContextView, status=201, errors=_STARTING
    ),
    Endpoint("GET", PATH, "List contexts and languages", list_all, answer=ContextList, errors=_ERRORS),
    Endpoint("DELETE", ONE, "Remove a context", remove, errors=_ERRORS),
    Endpoint("POST", ONE + "/restart", "Restart a context", restart, answer=ContextView, errors=_STARTING),
    Endpoint(
        "POST",
        ONE + "/interrupt",
        "Interrupt what runs in a context",
        interrupt,
        body=ContextInterrupt,
        answer=ContextInterrupted,
        errors=_ERRORS,
    ),
    Endpoint(
        "POST",
        EXECUTIONS,
        "Run code in a context and follow it",
        execute,
        body=ExecutionStart,
        query=StartQuery,
        answer=ExecutionStarted,
        status=201,
        gives=_EVENTS,
        errors=(*_STARTING, TooLarge),
    ),
    Endpoint(
        "GET",
        EXECUTIONS + "/{execution}",
        "Follow code that runs, or ran, from an event on",
        attach,
        query=AttachQuery,
        gives=_EVENTS,
        errors=_ERRORS,
    ),
)
