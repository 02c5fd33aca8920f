"""/v1/sandboxes/{sandbox}/files: list, stat, move, copy, remove; rights, owners, links, times; and directories."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from atoll.api.endpoint import Call, Endpoint, Nothing
from atoll.api.v1 import filewords, guestwords
from atoll.api.v1.sandboxes import ONE as SANDBOX
from atoll.model import limits
from atoll.model.errors import Conflict, Forbidden, GuestFailed, InvalidArgument, NotFound, OutOfSpace, TooLarge
from atoll.wire import guest
from atoll.wire.public import (
    DirectoryCreate,
    FileChmod,
    FileChown,
    FileCopy,
    FileList,
    FileMove,
    FileSymlink,
    FileTouch,
    FileView,
)


class FileQuery(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A file, and with whose rights it is reached; a relative path starts at that user's home."""

    path: str
    user: str | None = None


class StatQuery(FileQuery, omit_defaults=True):
    """With `follow`, what a link leads to is shown, not the link."""

    follow: bool = False


class ListQuery(FileQuery, omit_defaults=True):
    """How deep to list; 1 is the directory alone."""

    depth: int = 1


class FindQuery(FileQuery, omit_defaults=True):
    """What to find: a pattern on names, or on paths below `path` if it holds a slash; a type; a depth; how many."""

    pattern: str = "*"
    type: str | None = None
    depth: int | None = None
    limit: int = 10_000


class RemoveQuery(FileQuery, omit_defaults=True):
    """With `recursive`, a directory goes with all that is in it; with `missing_ok` it need not be there."""

    recursive: bool = False
    missing_ok: bool = False


async def list_directory(call: Call[Nothing, ListQuery]) -> FileList:
    return await _listed(call, "file.list", file_params(call.query))


async def find(call: Call[Nothing, FindQuery]) -> FileList:
    params = file_params(call.query)
    params["entries_max"] = params.pop("limit")
    return await _listed(call, "file.find", params)


async def _listed(call: Call[Any, Any], op: str, params: dict[str, Any]) -> FileList:
    sandbox = await call.control.guest(call.principal, call.path["sandbox"])
    async with sandbox.stream(op, params) as stream:
        found, end = await filewords.collected(stream, guestwords.file, limits.LIST_ENTRIES_MAX)
    return FileList(items=found, truncated=end.truncated)


async def stat(call: Call[Nothing, StatQuery]) -> FileView:
    return guestwords.file(await file_ask(call, "file.stat", file_params(call.query)))


async def remove(call: Call[Nothing, RemoveQuery]) -> None:
    await file_ask(call, "file.remove", file_params(call.query))


async def move(call: Call[FileMove, Nothing]) -> None:
    await file_ask(call, "file.move", _two_paths(call.body))


async def copy(call: Call[FileCopy, Nothing]) -> FileView:
    return guestwords.file(await file_ask(call, "file.copy", _two_paths(call.body)))


async def chmod(call: Call[FileChmod, Nothing]) -> FileView:
    params = {**file_params(call.body), "mode": mode_number(call.body.mode)}
    return guestwords.file(await file_ask(call, "file.chmod", params))


async def chown(call: Call[FileChown, Nothing]) -> FileView:
    if call.body.owner is None and call.body.group is None:
        raise InvalidArgument("give an owner, a group or both", code="invalid_body")
    return guestwords.file(await file_ask(call, "file.chown", file_params(call.body)))


async def symlink(call: Call[FileSymlink, Nothing]) -> FileView:
    return guestwords.file(await file_ask(call, "file.symlink", file_params(call.body)))


async def touch(call: Call[FileTouch, Nothing]) -> FileView:
    times = {"atime_ns": call.body.accessed_at, "mtime_ns": call.body.modified_at}
    params: dict[str, Any] = {"path": call.body.path, "user": call.body.user}
    params |= {name: nanoseconds(moment) for name, moment in times.items() if moment is not None}
    return guestwords.file(await file_ask(call, "file.touch", {k: v for k, v in params.items() if v is not None}))


def nanoseconds(moment: datetime) -> int:
    if moment.tzinfo is None:
        raise InvalidArgument("a time needs its zone, such as 2026-01-31T12:00:00Z", code="invalid_body")
    whole_s = int(moment.replace(microsecond=0).timestamp())
    return whole_s * 1_000_000_000 + moment.microsecond * 1000


async def create_directory(call: Call[DirectoryCreate, Nothing]) -> FileView:
    return guestwords.file(await file_ask(call, "file.mkdir", {**file_params(call.body), "parents": True}))


async def file_ask(call: Call[Any, Any], op: str, params: dict[str, Any]) -> dict[str, Any]:
    """One answer of the guest, however long it takes: a large folder is not copied within the time of a question."""
    sandbox = await call.control.guest(call.principal, call.path["sandbox"])
    async with sandbox.stream(op, params) as stream:
        async for message in stream:
            if isinstance(message, guest.Ok):
                return message.value
    raise guestwords.ended_early()


def file_params(value: msgspec.Struct) -> dict[str, Any]:
    """The guest's parameters; it has the same names and its own defaults for what is None."""
    return {key: item for key, item in msgspec.structs.asdict(value).items() if item is not None}


def _two_paths(body: FileMove | FileCopy) -> dict[str, Any]:
    params = file_params(body)
    params["path"] = params.pop("source")
    return params


def mode_number(text: str) -> int:
    """The rights in octal digits."""
    if not 1 <= len(text) <= 4 or not set(text) <= set("01234567"):
        raise InvalidArgument("mode is not an octal number like 644", code="invalid_query")
    return int(text, 8)


PATH = SANDBOX + "/files"
FILE_ERRORS = (InvalidArgument, Forbidden, NotFound, Conflict, GuestFailed)
_CHANGE_ERRORS = (*FILE_ERRORS, OutOfSpace)

ENDPOINTS = (
    Endpoint(
        "GET",
        PATH,
        "List a directory",
        list_directory,
        query=ListQuery,
        answer=FileList,
        errors=(*FILE_ERRORS, TooLarge),
    ),
    Endpoint(
        "GET",
        PATH + "/find",
        "Find files by name",
        find,
        query=FindQuery,
        answer=FileList,
        errors=(*FILE_ERRORS, TooLarge),
    ),
    Endpoint(
        "GET", PATH + "/stat", "Show a file or directory", stat, query=StatQuery, answer=FileView, errors=FILE_ERRORS
    ),
    Endpoint("DELETE", PATH, "Remove a file or directory", remove, query=RemoveQuery, errors=FILE_ERRORS),
    Endpoint("POST", PATH + "/move", "Move or rename", move, body=FileMove, errors=_CHANGE_ERRORS),
    Endpoint("POST", PATH + "/copy", "Copy", copy, body=FileCopy, answer=FileView, errors=_CHANGE_ERRORS),
    Endpoint("POST", PATH + "/chmod", "Change rights", chmod, body=FileChmod, answer=FileView, errors=FILE_ERRORS),
    Endpoint("POST", PATH + "/chown", "Change owners", chown, body=FileChown, answer=FileView, errors=FILE_ERRORS),
    Endpoint(
        "POST", PATH + "/symlink", "Make a link", symlink, body=FileSymlink, answer=FileView, errors=_CHANGE_ERRORS
    ),
    Endpoint("POST", PATH + "/touch", "Set times", touch, body=FileTouch, answer=FileView, errors=_CHANGE_ERRORS),
    Endpoint(
        "POST",
        SANDBOX + "/directories",
        "Make a directory and those above it",
        create_directory,
        body=DirectoryCreate,
        answer=FileView,
        status=201,
        errors=_CHANGE_ERRORS,
    ),
)
