"""/v1/sandboxes/{sandbox}/files/content and /batch: the bytes of files, streamed; one at a time or many in one call."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec

from atoll.api.endpoint import STREAMED, Call, Endpoint, Nothing, Streamed
from atoll.api.stream import body_chunks, until_disconnected
from atoll.api.v1 import guestwords
from atoll.api.v1.files import FILE_ERRORS, PATH, FileQuery, file_params, mode_number
from atoll.api.v1.processes import upload
from atoll.control.service import Guest
from atoll.model.errors import Conflict, GuestFailed, InvalidArgument, OutOfSpace
from atoll.wire import codec, framing, guest, stream
from atoll.wire.node import GuestStream
from atoll.wire.public import FileHead, FilesWritten, FileWritten

RAW = "application/octet-stream"
Headers = list[tuple[bytes, bytes]]


class ReadQuery(FileQuery, omit_defaults=True):
    """What part of a file to read; without `length` up to its end."""

    offset: int = 0
    length: int | None = None


class WriteQuery(FileQuery, omit_defaults=True):
    """How to write a file. `mode` is octal (755); directories on the way are made unless `parents` is false."""

    mode: str | None = None
    append: bool = False
    parents: bool = True


class BatchQuery(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """With whose rights the files are written."""

    user: str | None = None


async def read(call: Call[Nothing, ReadQuery]) -> Streamed:
    sandbox = await call.control.guest(call.principal, call.path["sandbox"])
    return await download(call, sandbox, file_params(call.query))


async def download(
    call: Call[Any, Any], sandbox: Guest, params: dict[str, Any], more_headers: Headers | None = None
) -> Streamed:
    """Send a file, or the part of it that `params` names, as the answer."""

    async def work() -> None:
        async with sandbox.stream("file.read", params) as opened:
            await _send_file(call, opened, params, more_headers or [])

    await until_disconnected(call.receive, work)
    return STREAMED


async def _send_file(call: Call[Any, Any], opened: GuestStream, params: dict[str, Any], more_headers: Headers) -> None:
    """Announce the size and send as many bytes: no more if the file has grown, an incomplete answer if it shrank."""
    messages = aiter(opened)
    left = _announced(await anext(messages, None), params)
    headers = [(b"content-type", RAW.encode("ascii")), *more_headers]
    if left is not None:
        headers.append((b"content-length", str(left).encode("ascii")))
    await call.send({"type": "http.response.start", "status": 200, "headers": headers})
    async for data in payloads(messages):
        if left is not None:
            data = data if len(data) <= left else data[:left]
            left -= len(data)
        await call.send({"type": "http.response.body", "body": data, "more_body": True})
        if left == 0:
            break
    if left:
        raise Conflict("the file has become shorter while it was read", code="file_changed")
    await call.send({"type": "http.response.body", "body": b""})


def _announced(message: guest.Message | None, params: dict[str, Any]) -> int | None:
    """The number of bytes that will come, or None where the size says nothing (0, as in /proc)."""
    if not isinstance(message, guest.Event):
        raise GuestFailed("the sandbox did not say what it opened")
    size = guestwords.file(message.value).size
    if size == 0:
        return None
    rest = max(0, size - int(params.get("offset", 0)))
    length = params.get("length")
    return rest if length is None else min(rest, int(length))


async def payloads(messages: AsyncIterator[guest.Message]) -> AsyncIterator[bytes]:
    """The bytes of a download, to its end; GuestFailed if there is none."""
    async for message in messages:
        if not isinstance(message, guest.Data):
            return
        yield message.payload
    raise guestwords.ended_early()


async def write(call: Call[Nothing, WriteQuery]) -> FileWritten:
    params = write_params(file_params(call.query))
    sandbox = await call.control.guest(call.principal, call.path["sandbox"])
    return await write_body(call, sandbox, params)


def write_params(params: dict[str, Any]) -> dict[str, Any]:
    if params.get("mode") is not None:
        params["mode"] = mode_number(params["mode"])
    return params


async def write_body(call: Call[Any, Any], sandbox: Guest, params: dict[str, Any]) -> FileWritten:
    """Write the request's body as a file, all of it or nothing."""
    length = call.header(b"content-length")
    if length.isascii() and length.isdigit() and len(length) < 19 and not params.get("append"):
        params["size"] = int(length)
    async with sandbox.stream("file.write", params) as opened:
        view = guestwords.file(await upload(call, opened))
    return FileWritten(path=view.path, size=view.size)


async def write_many(call: Call[Nothing, BatchQuery]) -> FilesWritten:
    """Frames in, frames out: a head for each file, checked here, and its bytes as they come."""
    sandbox = await call.control.guest(call.principal, call.path["sandbox"])
    async with sandbox.stream("file.write_many", file_params(call.query)) as opened:
        decoder = framing.Decoder()
        begun = False
        async for chunk in body_chunks(call.receive):
            for frame in _frames(decoder, chunk):
                begun = begun or frame.kind == framing.CONTROL
                await _forward(frame, opened, begun=begun)
        if decoder.pending_bytes:
            raise InvalidArgument("the body ends in the middle of a frame", code="invalid_body")
        await opened.commit()
        async for message in opened:
            if isinstance(message, guest.Ok):
                return FilesWritten(written=guestwords.written(message.value).written)
    raise guestwords.ended_early()


def _frames(decoder: framing.Decoder, chunk: bytes) -> list[framing.Frame]:
    try:
        return decoder.feed(chunk)
    except framing.FrameError as error:
        raise InvalidArgument(f"the body is not frames: {error}", code="invalid_body") from None


async def _forward(frame: framing.Frame, opened: GuestStream, *, begun: bool) -> None:
    if frame.kind == framing.CONTROL:
        head = codec.decode(frame.payload, FileHead)
        await opened.send_control(write_params(file_params(head)))
    elif frame.kind == framing.INPUT and begun:
        await opened.send(frame.payload)
    else:
        raise InvalidArgument("each file is a frame of kind 0 and then frames of kind 3", code="invalid_body")


ENDPOINTS = (
    Endpoint("GET", PATH + "/content", "Read a file", read, query=ReadQuery, gives={RAW: None}, errors=FILE_ERRORS),
    Endpoint(
        "PUT",
        PATH + "/content",
        "Write a file, all of it or nothing",
        write,
        query=WriteQuery,
        takes=RAW,
        answer=FileWritten,
        errors=(*FILE_ERRORS, OutOfSpace),
    ),
    Endpoint(
        "POST",
        PATH + "/batch",
        "Write many files in one call",
        write_many,
        query=BatchQuery,
        takes=stream.FRAMES,
        answer=FilesWritten,
        errors=(*FILE_ERRORS, OutOfSpace),
    ),
)
