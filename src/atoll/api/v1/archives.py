"""/v1/sandboxes/{sandbox}/files/archive: a folder out as tar or zip, written as it is sent; and archives in."""

from __future__ import annotations

import msgspec

from atoll.api.endpoint import STREAMED, Call, Endpoint, Nothing, Streamed
from atoll.api.stream import until_disconnected
from atoll.api.v1 import filewords
from atoll.api.v1.filecontent import RAW, payloads
from atoll.api.v1.files import FILE_ERRORS, PATH, FileQuery, file_params
from atoll.api.v1.processes import upload
from atoll.model.errors import DeadlineExceeded, GuestFailed, InvalidArgument, OutOfSpace, TooLarge
from atoll.model.files import ARCHIVE_FORMATS
from atoll.wire import guest
from atoll.wire.node import GuestStream
from atoll.wire.public import ArchiveUnpacked

MEDIA_TYPES = {"tar": "application/x-tar", "tar.gz": "application/gzip", "zip": "application/zip"}


class PackQuery(FileQuery, omit_defaults=True):
    """What to pack: `path` and what is below it, or only `name` (repeatable) below it. Format: tar, tar.gz or zip."""

    format: str = "tar"
    name: list[str] = msgspec.field(default_factory=list)


class UnpackQuery(FileQuery, omit_defaults=True):
    """Where to unpack to, and what the body is: tar, tar.gz or zip. `bytes_max` bounds what comes out of it."""

    format: str = "tar"
    bytes_max: int | None = None


async def pack(call: Call[Nothing, PackQuery]) -> Streamed:
    params = file_params(call.query)
    params["names"] = params.pop("name")
    media_type = MEDIA_TYPES[_format(call.query.format)]
    sandbox = await call.control.guest(call.principal, call.path["sandbox"])

    async def work() -> None:
        async with sandbox.stream("file.pack", params) as opened:
            await _send_archive(call, opened, media_type)

    await until_disconnected(call.receive, work)
    return STREAMED


async def _send_archive(call: Call[Nothing, PackQuery], opened: GuestStream, media_type: str) -> None:
    """The answer begins when there is something to send, so that what fails before is an error of its own."""
    messages = aiter(opened)
    if not isinstance(await anext(messages, None), guest.Event):
        raise GuestFailed("the sandbox did not say what it packs")
    begun = False
    async for data in payloads(messages):
        if not begun:
            headers = [(b"content-type", media_type.encode("ascii"))]
            await call.send({"type": "http.response.start", "status": 200, "headers": headers})
            begun = True
        await call.send({"type": "http.response.body", "body": data, "more_body": True})
    if not begun:
        raise GuestFailed("the sandbox sent an empty archive")
    await call.send({"type": "http.response.body", "body": b""})


async def unpack(call: Call[Nothing, UnpackQuery]) -> ArchiveUnpacked:
    _format(call.query.format)
    sandbox = await call.control.guest(call.principal, call.path["sandbox"])
    async with sandbox.stream("file.unpack", file_params(call.query)) as opened:
        return filewords.unpacked(await upload(call, opened))


def _format(text: str) -> str:
    if text not in ARCHIVE_FORMATS:
        raise InvalidArgument(f"format is one of {', '.join(ARCHIVE_FORMATS)}", code="invalid_query")
    return text


ENDPOINTS = (
    Endpoint(
        "GET",
        PATH + "/archive",
        "Read a directory as an archive",
        pack,
        query=PackQuery,
        gives=dict.fromkeys(MEDIA_TYPES.values()),
        errors=(*FILE_ERRORS, DeadlineExceeded, TooLarge),
    ),
    Endpoint(
        "PUT",
        PATH + "/archive",
        "Unpack an archive into a directory",
        unpack,
        query=UnpackQuery,
        takes=RAW,
        answer=ArchiveUnpacked,
        errors=(*FILE_ERRORS, DeadlineExceeded, TooLarge, OutOfSpace),
    ),
)
