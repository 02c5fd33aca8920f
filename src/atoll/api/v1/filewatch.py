"""/v1/sandboxes/{sandbox}/files/watch: the changes of a directory, as a stream of events."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from atoll.api.endpoint import STREAMED, Call, Endpoint, Nothing, Streamed
from atoll.api.stream import send_events, until_disconnected
from atoll.api.v1 import filewords, guestwords
from atoll.api.v1.files import FILE_ERRORS, PATH, FileQuery, file_params
from atoll.model.errors import GuestFailed
from atoll.wire import guest
from atoll.wire import stream as encodings
from atoll.wire.node import GuestStream
from atoll.wire.public import FileEvent, FileWatchEnded


class WatchQuery(FileQuery, omit_defaults=True):
    """With `recursive`, also what is below the directory, and directories that appear later."""

    recursive: bool = False


async def watch(call: Call[Nothing, WatchQuery]) -> Streamed:
    sandbox = await call.control.guest(call.principal, call.path["sandbox"])

    async def follow() -> None:
        async with sandbox.stream("file.watch", file_params(call.query)) as stream:
            await send_events(call, events(stream))

    await until_disconnected(call.receive, follow)
    return STREAMED


async def events(stream: GuestStream) -> AsyncGenerator[FileEvent, None]:
    """The public events: watching, changes and overflows, and the end if the directory goes."""
    begun = False
    async for message in stream:
        if isinstance(message, guest.Event):
            if begun == (message.value.get("type") == "watching"):
                raise GuestFailed("the sandbox told of changes out of turn")
            begun = True
            yield filewords.file_event(message.value)
        elif isinstance(message, guest.End) and begun:
            yield FileWatchEnded(reason="removed")
            return
        else:
            break
    raise guestwords.ended_early()


ENDPOINTS = (
    Endpoint(
        "GET",
        PATH + "/watch",
        "Watch a directory for changes",
        watch,
        query=WatchQuery,
        gives={encodings.NDJSON: FileEvent, encodings.FRAMES: None},
        errors=FILE_ERRORS,
    ),
)
