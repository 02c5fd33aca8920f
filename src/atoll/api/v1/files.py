"""/v1/sandboxes/{sandbox}/files: read and write, streamed; list, stat, move, remove; and directories."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec

from atoll.api.endpoint import STREAMED, Call, Endpoint, Nothing, Streamed
from atoll.api.stream import until_disconnected
from atoll.api.v1 import guestwords
from atoll.api.v1.processes import upload
from atoll.api.v1.sandboxes import ONE as SANDBOX
from atoll.model import limits
from atoll.model.errors import Conflict, Forbidden, GuestFailed, InvalidArgument, NotFound, OutOfSpace
from atoll.wire import guest
from atoll.wire.node import GuestStream
from atoll.wire.public import DirectoryCreate, FileList, FileMove, FileView, FileWritten

RAW = "application/octet-stream"


class FileQuery(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A file, and with whose rights it is reached; a relative path starts at that user's home."""

    path: str
    user: str | None = None


class ReadQuery(FileQuery, omit_defaults=True):
    """What part of a file to read; without `length` up to its end."""

    offset: int = 0
    length: int | None = None


class WriteQuery(FileQuery, omit_defaults=True):
    """How to write a file. `mode` is octal (755); directories on the way are made unless `parents` is false."""

    mode: str | None = None
    append: bool = False
    parents: bool = True

    def mode_number(self) -> int | None:
        if self.mode is None:
            return None
        try:
            number = int(self.mode[:8], 8)
        except ValueError:
            number = -1
        if not 0 <= number <= 0o7777:
            raise InvalidArgument("mode is not an octal number like 644", code="invalid_query")
        return number


class ListQuery(FileQuery, omit_defaults=True):
    """How deep to list; 1 is the directory alone."""

    depth: int = 1


class RemoveQuery(FileQuery, omit_defaults=True):
    """With `recursive`, a directory goes with all that is in it."""

    recursive: bool = False


async def read(call: Call[Nothing, ReadQuery]) -> Streamed:
    sandbox = await call.control.guest(call.principal, call.path["sandbox"])

    async def download() -> None:
        async with sandbox.stream("file.read", _params(call.query)) as stream:
            await _send_file(call, stream)

    await until_disconnected(call.receive, download)
    return STREAMED


async def _send_file(call: Call[Nothing, ReadQuery], stream: GuestStream) -> None:
    """Announce the size and send as many bytes: no more if the file has grown, an incomplete answer if it shrank."""
    messages = aiter(stream)
    left = await _open(call, messages)
    headers = [(b"content-type", RAW.encode("ascii"))]
    if left is not None:
        headers.append((b"content-length", str(left).encode("ascii")))
    await call.send({"type": "http.response.start", "status": 200, "headers": headers})
    async for message in messages:
        if not isinstance(message, guest.Data):
            break  # the end
        data = message.payload
        if left is not None:
            data = data if len(data) <= left else data[:left]
            left -= len(data)
        await call.send({"type": "http.response.body", "body": data, "more_body": True})
        if left == 0:
            break
    else:
        raise guestwords.ended_early()
    if left:
        raise Conflict("the file has become shorter while it was read", code="file_changed")
    await call.send({"type": "http.response.body", "body": b""})


async def _open(call: Call[Nothing, ReadQuery], messages: AsyncIterator[guest.Message]) -> int | None:
    """The number of bytes that will come, or None where the size says nothing (0, as in /proc)."""
    message = await anext(messages, None)
    if not isinstance(message, guest.Event):
        raise GuestFailed("the sandbox did not say what it opened")
    size = guestwords.file(message.value).size
    if size == 0:
        return None
    rest = max(0, size - call.query.offset)
    return rest if call.query.length is None else min(rest, call.query.length)


async def write(call: Call[Nothing, WriteQuery]) -> FileWritten:
    params = _params(call.query)
    mode = call.query.mode_number()
    if mode is not None:
        params["mode"] = mode
    length = call.header(b"content-length")
    if length.isascii() and length.isdigit() and len(length) < 19 and not call.query.append:
        params["size"] = int(length)
    sandbox = await call.control.guest(call.principal, call.path["sandbox"])
    async with sandbox.stream("file.write", params) as stream:
        view = guestwords.file(await upload(call, stream))
    return FileWritten(path=view.path, size=view.size)


async def list_directory(call: Call[Nothing, ListQuery]) -> FileList:
    sandbox = await call.control.guest(call.principal, call.path["sandbox"])
    async with sandbox.stream("file.list", _params(call.query)) as stream:
        found = guestwords.entries(stream, limits.LIST_ENTRIES_MAX)
        return FileList(items=[guestwords.file(entry) async for entry in found])


async def stat(call: Call[Nothing, FileQuery]) -> FileView:
    return guestwords.file(await _ask(call, "file.stat", _params(call.query)))


async def remove(call: Call[Nothing, RemoveQuery]) -> None:
    await _ask(call, "file.remove", _params(call.query))


async def move(call: Call[FileMove, Nothing]) -> None:
    body = call.body
    params = {"path": body.source, "target": body.target, "user": body.user}
    await _ask(call, "file.move", {key: value for key, value in params.items() if value is not None})


async def create_directory(call: Call[DirectoryCreate, Nothing]) -> FileView:
    return guestwords.file(await _ask(call, "file.mkdir", {**_params(call.body), "parents": True}))


async def _ask(call: Call[Any, Any], op: str, params: dict[str, Any]) -> dict[str, Any]:
    sandbox = await call.control.guest(call.principal, call.path["sandbox"])
    return await sandbox.call(op, params)


def _params(value: msgspec.Struct) -> dict[str, Any]:
    """The guest's parameters; it has the same names and its own defaults for what is None."""
    return {key: item for key, item in msgspec.structs.asdict(value).items() if item is not None}


PATH = SANDBOX + "/files"
_ERRORS = (InvalidArgument, Forbidden, NotFound, Conflict, GuestFailed)

ENDPOINTS = (
    Endpoint("GET", PATH + "/content", "Read a file", read, query=ReadQuery, gives={RAW: None}, errors=_ERRORS),
    Endpoint(
        "PUT",
        PATH + "/content",
        "Write a file, all of it or nothing",
        write,
        query=WriteQuery,
        takes=RAW,
        answer=FileWritten,
        errors=(*_ERRORS, OutOfSpace),
    ),
    Endpoint("GET", PATH, "List a directory", list_directory, query=ListQuery, answer=FileList, errors=_ERRORS),
    Endpoint("GET", PATH + "/stat", "Show a file or directory", stat, query=FileQuery, answer=FileView, errors=_ERRORS),
    Endpoint("DELETE", PATH, "Remove a file or directory", remove, query=RemoveQuery, errors=_ERRORS),
    Endpoint("POST", PATH + "/move", "Move or rename", move, body=FileMove, errors=_ERRORS),
    Endpoint(
        "POST",
        SANDBOX + "/directories",
        "Make a directory and those above it",
        create_directory,
        body=DirectoryCreate,
        answer=FileView,
        status=201,
        errors=_ERRORS,
    ),
)
