"""Streams over HTTP: events out, raw bytes in and out, and the caller who leaves in the middle."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, TypeVar

import anyio
from starlette.types import Receive

from atoll.api.endpoint import Call
from atoll.api.errors import ClientGone, of_exception, problem_of
from atoll.model.errors import AtollError
from atoll.wire import stream
from atoll.wire.public import Answer, StreamFailed

Event = TypeVar("Event", bound=Answer)


async def until_disconnected(receive: Receive, work: Callable[[], Awaitable[None]]) -> None:
    """Do the work, but stop at once when the caller leaves. The request's body must have been read."""
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            tasks.cancel_scope.cancel()

        tasks.start_soon(watch)
        try:
            await work()
        except Exception as error:  # carried out of the group as it is, not wrapped in a group of exceptions
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def send_events(call: Call[Any, Any], events: AsyncGenerator[Event, None], *, lines_only: bool = False) -> None:
    """Send events in the encoding that the caller accepts; or as lines, where an event may be larger than a frame.

    The answer begins with the first event, so that what fails before it is an error with its own status. What fails
    later is the last event.
    """
    media_type, encode = stream.choose("" if lines_only else call.header(b"accept"))
    async with aclosing(events):
        await _send_all(call, events, media_type, encode)


async def _send_all(
    call: Call[Any, Any], events: AsyncGenerator[Event, None], media_type: str, encode: stream.Encoder
) -> None:
    first = await anext(events)
    headers = [(b"content-type", media_type.encode("ascii")), (b"cache-control", b"no-store")]
    await call.send({"type": "http.response.start", "status": 200, "headers": headers})
    await call.send({"type": "http.response.body", "body": encode(first), "more_body": True})
    try:
        with call.control.accounts.keys.ends.open_by(call.principal.key_id):
            async for event in events:
                await call.send({"type": "http.response.body", "body": encode(event), "more_body": True})
    except AtollError as error:
        failed = StreamFailed(problem=problem_of(of_exception(error), call.request_id))
        await call.send({"type": "http.response.body", "body": encode(failed), "more_body": True})
    await call.send({"type": "http.response.body", "body": b""})


async def body_chunks(receive: Receive) -> AsyncIterator[bytes]:
    """The request's body as it comes; ClientGone if it does not come to its end."""
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        if message.get("body"):
            yield message["body"]
        more = message.get("more_body", False)
