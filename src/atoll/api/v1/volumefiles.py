"""/v1/volumes/{volume}/files and /directories: what a volume holds, read and changed without a sandbox."""

from __future__ import annotations

import msgspec

from atoll.api.endpoint import STREAMED, Call, Endpoint, Nothing, Streamed
from atoll.api.stream import body_chunks, until_disconnected
from atoll.api.v1.filecontent import RAW
from atoll.api.v1.files import mode_number
from atoll.api.v1.guestwords import moment
from atoll.api.v1.volumes import ONE as VOLUME
from atoll.model.errors import Conflict, Forbidden, InvalidArgument, LimitExceeded, NotFound, OutOfSpace
from atoll.wire.public import FileList, FileView, FileWritten, VolumeDirectoryCreate, VolumeFileChange, VolumeFileMove
from atoll.wire.volumes import Ownership, VolumeFile, VolumeReading


class VolumePathQuery(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A file of a volume; its path begins at the volume's root."""

    path: str


class VolumeStatQuery(VolumePathQuery, omit_defaults=True):
    """With `follow`, what a link leads to is shown, not the link."""

    follow: bool = False


class VolumeListQuery(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Which directory of a volume to list, and how deep; 1 is the directory alone."""

    path: str = "/"
    depth: int = 1


class VolumeReadQuery(VolumePathQuery, omit_defaults=True):
    """What part of a file to read; without `length` up to its end."""

    offset: int = 0
    length: int | None = None


class VolumeWriteQuery(VolumePathQuery, omit_defaults=True):
    """How to write a file. `mode` is octal (755); directories on the way are made unless `parents` is false."""

    uid: int | None = None
    gid: int | None = None
    mode: str | None = None
    parents: bool = True
    overwrite: bool = True


class VolumeRemoveQuery(VolumePathQuery, omit_defaults=True):
    """With `recursive`, a directory goes with all that is in it; with `missing_ok` it need not be there."""

    recursive: bool = False
    missing_ok: bool = False


def view(file: VolumeFile) -> FileView:
    """A volume knows no names of owners, so they are numbers."""
    return FileView(
        path=file.path,
        name=file.name,
        type=file.type,
        size=file.size,
        mode=file.mode,
        owner=str(file.uid),
        group=str(file.gid),
        modified_at=moment(file.mtime_ns / 1e9),
        link_target=file.target,
        accessed_at=moment(file.atime_ns / 1e9),
        changed_at=moment(file.ctime_ns / 1e9),
        links=file.links,
    )


def ownership(uid: int | None, gid: int | None, mode: str | None) -> Ownership:
    return Ownership(uid, gid, None if mode is None else mode_number(mode))


async def list_directory(call: Call[Nothing, VolumeListQuery]) -> FileList:
    files = await call.control.volumes.files(call.principal, call.path["volume"])
    listed = await files.list(call.query.path, call.query.depth)
    return FileList(items=[view(file) for file in listed.items], truncated=listed.truncated)


async def stat(call: Call[Nothing, VolumeStatQuery]) -> FileView:
    files = await call.control.volumes.files(call.principal, call.path["volume"])
    return view(await files.stat(call.query.path, follow=call.query.follow))


async def read(call: Call[Nothing, VolumeReadQuery]) -> Streamed:
    files = await call.control.volumes.files(call.principal, call.path["volume"])
    query = call.query

    async def work() -> None:
        async with files.read(query.path, query.offset, query.length) as reading:
            rest = max(0, reading.file.size - query.offset)
            await _send(call, reading, rest if query.length is None else min(rest, query.length))

    await until_disconnected(call.receive, work)
    return STREAMED


async def _send(call: Call[Nothing, VolumeReadQuery], reading: VolumeReading, left: int) -> None:
    headers = [(b"content-type", RAW.encode("ascii")), (b"content-length", str(left).encode("ascii"))]
    await call.send({"type": "http.response.start", "status": 200, "headers": headers})
    async for data in reading:
        left -= len(data)
        await call.send({"type": "http.response.body", "body": data, "more_body": True})
    if left:
        raise Conflict("the file has become shorter while it was read", code="file_changed")
    await call.send({"type": "http.response.body", "body": b""})


async def write(call: Call[Nothing, VolumeWriteQuery]) -> FileWritten:
    files = await call.control.volumes.files(call.principal, call.path["volume"])
    query = call.query
    written = await files.write(
        query.path,
        body_chunks(call.receive),
        ownership(query.uid, query.gid, query.mode),
        parents=query.parents,
        overwrite=query.overwrite,
    )
    return FileWritten(path=written.path, size=written.size)


async def change(call: Call[VolumeFileChange, Nothing]) -> FileView:
    files = await call.control.volumes.files(call.principal, call.path["volume"])
    body = call.body
    return view(await files.change(body.path, ownership(body.uid, body.gid, body.mode)))


async def move(call: Call[VolumeFileMove, Nothing]) -> FileView:
    files = await call.control.volumes.files(call.principal, call.path["volume"])
    body = call.body
    return view(await files.move(body.source, body.target, overwrite=body.overwrite, parents=body.parents))


async def remove(call: Call[Nothing, VolumeRemoveQuery]) -> None:
    files = await call.control.volumes.files(call.principal, call.path["volume"])
    query = call.query

    async def work() -> None:
        await files.remove(query.path, recursive=query.recursive, missing_ok=query.missing_ok)

    await until_disconnected(call.receive, work)


async def create_directory(call: Call[VolumeDirectoryCreate, Nothing]) -> FileView:
    files = await call.control.volumes.files(call.principal, call.path["volume"])
    body = call.body
    return view(await files.make_directory(body.path, ownership(body.uid, body.gid, body.mode)))


PATH = VOLUME + "/files"
_ERRORS = (InvalidArgument, Forbidden, NotFound, Conflict)
_CHANGE_ERRORS = (*_ERRORS, OutOfSpace)

ENDPOINTS = (
    Endpoint(
        "GET",
        PATH,
        "List a directory of a volume",
        list_directory,
        query=VolumeListQuery,
        answer=FileList,
        errors=_ERRORS,
    ),
    Endpoint(
        "GET",
        PATH + "/stat",
        "Show a file or directory of a volume",
        stat,
        query=VolumeStatQuery,
        answer=FileView,
        errors=_ERRORS,
    ),
    Endpoint(
        "GET",
        PATH + "/content",
        "Read a file of a volume",
        read,
        query=VolumeReadQuery,
        gives={RAW: None},
        errors=(*_ERRORS, LimitExceeded),
    ),
    Endpoint(
        "PUT",
        PATH + "/content",
        "Write a file of a volume, all of it or nothing",
        write,
        query=VolumeWriteQuery,
        takes=RAW,
        answer=FileWritten,
        errors=(*_CHANGE_ERRORS, LimitExceeded),
    ),
    Endpoint(
        "PATCH",
        PATH,
        "Change owner and rights of a file of a volume",
        change,
        body=VolumeFileChange,
        answer=FileView,
        errors=_ERRORS,
    ),
    Endpoint(
        "POST",
        PATH + "/move",
        "Move or rename a file of a volume",
        move,
        body=VolumeFileMove,
        answer=FileView,
        errors=_CHANGE_ERRORS,
    ),
    Endpoint(
        "DELETE",
        PATH,
        "Remove a file or directory of a volume",
        remove,
        query=VolumeRemoveQuery,
        status=204,
        errors=(*_ERRORS, LimitExceeded),
    ),
    Endpoint(
        "POST",
        VOLUME + "/directories",
        "Make a directory of a volume and those above it",
        create_directory,
        body=VolumeDirectoryCreate,
        answer=FileView,
        status=201,
        errors=_CHANGE_ERRORS,
    ),
)
