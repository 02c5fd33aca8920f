"""Answers that are streams of Connect envelopes: the first event, keep-alives while nothing happens, and the end."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, TypeVar

import anyio

from atoll.api.compat.e2b import connect
from atoll.api.compat.e2b.ask import Ask
from atoll.api.compat.e2b.connect import Envelopes, Failure
from atoll.api.compat.e2b.proxywords import GONE
from atoll.api.endpoint import read_body
from atoll.api.stream import until_disconnected
from atoll.model import limits
from atoll.model.errors import AtollError, GuestFailed, InvalidArgument
from atoll.wire import codec

T = TypeVar("T")
Events = AsyncGenerator[dict[str, Any] | Failure, None]

DEADLINE = Failure("deadline_exceeded", "context deadline exceeded")


async def asked(ask: Ask, kind: type[T]) -> T:
    """The one message of a call whose answer is a stream."""
    messages = Envelopes().feed(await read_body(ask.scope, ask.receive))
    if len(messages) != 1:
        raise InvalidArgument("the call holds one message", code="invalid_body")
    return codec.decode(messages[0], kind)


async def send_events(ask: Ask, events: Events, keepalive: dict[str, Any], limit_s: float | None = None) -> None:
    """Send what comes, until its end, the caller's time is up, or it leaves. A Failure among the events is the end."""
    sender = _Sender(ask)

    async def work() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_keep_alive, sender, keepalive, keepalive_s(ask))
            failure: Failure | AtollError | None = DEADLINE
            with anyio.move_on_after(limit_s):
                failure = await _pass_on(sender, events)
            tasks.cancel_scope.cancel()
        if isinstance(failure, AtollError):
            raise failure
        await sender.send(connect.end(failure), last=True)

    await until_disconnected(ask.receive, work)


async def _pass_on(sender: _Sender, events: Events) -> Failure | AtollError | None:
    """An error that means that the sandbox is gone is returned as it is: the stream is then cut off, not ended."""
    try:
        async with aclosing(events):
            async for event in events:
                if isinstance(event, Failure):
                    return event
                await sender.send(connect.envelope(event))
    except AtollError as error:
        lost = error.code in GONE or (isinstance(error, GuestFailed) and sender.begun)
        return error if lost else connect.failure_of(error)
    return None


class _Sender:
    """One message at a time; the head of the answer goes before the first."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._lock = anyio.Lock()
        self.begun = False

    async def send(self, data: bytes, *, last: bool = False) -> None:
        async with self._lock:
            if not self.begun:
                headers = [(b"content-type", connect.STREAM.encode("ascii")), (b"cache-control", b"no-store")]
                await self._ask.send({"type": "http.response.start", "status": 200, "headers": headers})
                self.begun = True
            await self._ask.send({"type": "http.response.body", "body": data, "more_body": not last})


async def _keep_alive(sender: _Sender, event: dict[str, Any], interval_s: float) -> None:
    while True:
        await anyio.sleep(interval_s)
        if sender.begun:
            await sender.send(connect.envelope(event))


def keepalive_s(ask: Ask) -> float:
    """How often the caller wants to hear that the stream lives."""
    text = ask.header(b"keepalive-ping-interval")
    if text.isascii() and text.isdigit() and len(text) <= 5 and int(text) > 0:
        return float(text)
    return limits.E2B_KEEPALIVE_S
