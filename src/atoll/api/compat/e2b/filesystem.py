"""E2B's `filesystem.Filesystem`: files and folders by name, and watching them, translated to the guest's operations."""

from __future__ import annotations

import posixpath
import stat
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from atoll.api.compat.e2b import connect, metadata, streaming
from atoll.api.compat.e2b.ask import Ask, Operation, as_root, without_none
from atoll.api.v1 import filewords, guestwords
from atoll.control.service import Guest
from atoll.model import limits
from atoll.model.errors import Conflict, InvalidArgument, NotFound, TooLarge
from atoll.wire import codec, guest
from atoll.wire.public import FileView

_KEEPALIVE: Final[dict[str, Any]] = {"keepalive": {}}
_TYPES: Final = {"file": "FILE_TYPE_FILE", "directory": "FILE_TYPE_DIRECTORY", "symlink": "FILE_TYPE_SYMLINK"}
_LETTERS: Final = {"directory": stat.S_IFDIR, "symlink": stat.S_IFLNK, "file": stat.S_IFREG}

# What a guest reports, as the library that E2B's agent watches with would. The end of a write is no event of its own
# there, and what was moved here is new.
_CHANGES: Final = {
    "created": "EVENT_TYPE_CREATE",
    "moved_to": "EVENT_TYPE_CREATE",
    "modified": "EVENT_TYPE_WRITE",
    "removed": "EVENT_TYPE_REMOVE",
    "moved_from": "EVENT_TYPE_RENAME",
    "attributes": "EVENT_TYPE_CHMOD",
}
_OWN_PREFIX: Final = ".atoll-"  # files on their way to their names


class OnePath(msgspec.Struct):
    path: str = ""


class TwoPaths(msgspec.Struct):
    source: str
    destination: str


class Listing(msgspec.Struct):
    path: str = ""
    depth: int = 0


class Watching(msgspec.Struct, rename="camel"):
    path: str
    recursive: bool = False
    include_entry: bool = False
    allow_network_mounts: bool = False


class WatcherName(msgspec.Struct, rename="camel"):
    watcher_id: str


class _Change(msgspec.Struct):
    path: str
    type: str = ""


def entry(value: Mapping[str, Any]) -> dict[str, Any]:
    """A file in E2B's words. A link is marked as one and has the type of what it leads to."""
    view = guestwords.file(value)
    target_type = value.get("target_type")
    kind = str(target_type) if view.type == "symlink" and target_type else view.type
    moment = view.modified_at.astimezone(UTC)
    return without_none(
        {
            "name": view.name,
            "type": _TYPES.get(kind, "FILE_TYPE_UNSPECIFIED"),
            "path": view.path,
            "size": str(view.size),
            "mode": view.mode,
            "permissions": permissions(view),
            "owner": view.owner,
            "group": view.group,
            "modifiedTime": _timestamp(moment),
            "symlinkTarget": view.link_target,
            "isSymlink": True if view.type == "symlink" else None,
            "metadata": metadata.labels(value),
        }
    )


def permissions(view: FileView) -> str:
    return stat.filemode(_LETTERS.get(view.type, stat.S_IFREG) | view.mode)


def _timestamp(moment: datetime) -> str:
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def change(value: Mapping[str, Any], root: str) -> dict[str, Any] | None:
    """A change as E2B tells it, with its name below the watched folder; None for what it does not tell."""
    words = codec.from_guest(value, _Change)
    kind = _CHANGES.get(words.type)
    name = posixpath.relpath(words.path, root) if words.path.startswith(root.rstrip("/") + "/") else ""
    if kind is None or not name or posixpath.basename(name).startswith(_OWN_PREFIX):
        return None
    return {"name": name, "type": kind}


async def stat_path(ask: Ask) -> None:
    asked = await ask.body(OnePath)
    await ask.answer({"entry": await described(await ask.guest(), _path(asked.path), ask.user())})


async def described(inside: Guest, path: str, user: str | None) -> dict[str, Any]:
    return entry(await inside.call("file.stat", as_root({"path": path, "xattr_prefix": metadata.PREFIX}, user)))


def _path(path: str) -> str:
    """E2B takes no path for the home of the user."""
    return path or "."


async def make_dir(ask: Ask) -> None:
    asked, user = await ask.body(OnePath), ask.user()
    inside = await ask.guest()
    params = as_root({"path": _path(asked.path), "parents": True, "exist_ok": False}, user)
    try:
        await inside.call("file.mkdir", params)
    except InvalidArgument as error:
        if error.code != "not_directory":
            raise
        raise InvalidArgument(f"path already exists but it is not a directory: {asked.path}") from error
    except Conflict as error:
        await _check_directory(inside, asked.path, user)
        raise Conflict(f"directory already exists: {asked.path}", code="exists") from error
    await ask.answer({"entry": await described(inside, _path(asked.path), user)})


async def _check_directory(inside: Guest, path: str, user: str | None) -> None:
    found = await inside.call("file.stat", as_root({"path": _path(path), "follow": True}, user))
    if guestwords.file(found).type != "directory":
        raise InvalidArgument(f"path already exists but it is not a directory: {path}")


async def move(ask: Ask) -> None:
    asked, user = await ask.body(TwoPaths), ask.user()
    inside = await ask.guest()
    params = {"path": asked.source, "target": asked.destination, "parents": True}
    await _answered(inside, "file.move", as_root(params, user))
    await ask.answer({"entry": await described(inside, asked.destination, user)})


async def _answered(inside: Guest, op: str, params: dict[str, Any]) -> None:
    """One answer, however long it takes."""
    async with inside.stream(op, params) as stream:
        async for message in stream:
            if isinstance(message, guest.Ok | guest.End):
                return
    raise guestwords.ended_early()


async def list_dir(ask: Ask) -> None:
    asked, user = await ask.body(Listing), ask.user()
    depth = min(max(1, asked.depth), limits.TREE_DEPTH_MAX)
    params = {"path": _path(asked.path), "depth": depth, "xattr_prefix": metadata.PREFIX}
    inside = await ask.guest()
    try:
        async with inside.stream("file.list", as_root(params, user)) as stream:
            found, end = await filewords.collected(stream, entry, limits.LIST_ENTRIES_MAX)
    except InvalidArgument as error:
        if error.code != "not_directory":
            raise
        raise InvalidArgument(f"path is not a directory: {asked.path}") from error
    except NotFound as error:
        raise NotFound(f"directory not found: {asked.path}") from error
    if end.truncated:
        raise TooLarge(f"more than {limits.LIST_ENTRIES_MAX} files are below {asked.path}: ask for less depth")
    await ask.answer({"entries": found})


async def remove(ask: Ask) -> None:
    asked = await ask.body(OnePath)
    params = as_root({"path": asked.path, "recursive": True, "missing_ok": True}, ask.user())
    await _answered(await ask.guest(), "file.remove", params)
    await ask.answer({})


async def watch_dir(ask: Ask) -> None:
    asked, user = await streaming.asked(ask, Watching), ask.user()
    limit_s = connect.timeout_s(ask.header(b"connect-timeout-ms"))
    inside = await ask.guest()

    async def events() -> streaming.Events:
        root = ""
        async with inside.stream("file.watch", _watch_params(asked, user)) as stream:
            async for message in stream:
                if not isinstance(message, guest.Event):
                    return
                if message.value.get("type") == "watching":
                    root = codec.from_guest(message.value, _Change).path
                    yield {"start": {}}
                    continue
                told = change(message.value, root)
                if told is not None:
                    yield {"filesystem": await _with_entry(told, asked, inside, root, user)}

    await streaming.send_events(ask, _explained(events(), asked.path), _KEEPALIVE, limit_s)


async def _explained(events: streaming.Events, path: str) -> streaming.Events:
    try:
        async for event in events:
            yield event
    except InvalidArgument as error:
        raise _watch_refusal(error, path) from error
    except NotFound as error:
        raise _watch_refusal(error, path) from error


def _watch_refusal(error: InvalidArgument | NotFound, path: str) -> Exception:
    if error.code == "not_directory":
        return InvalidArgument(f"path {path} not a directory")
    return NotFound(f"path {path} not found") if error.code == "not_found" else error


async def _with_entry(
    told: dict[str, Any], asked: Watching, inside: Guest, root: str, user: str | None
) -> dict[str, Any]:
    """The change, with what is at its name now if the caller wants that and something is there."""
    if not asked.include_entry:
        return told
    try:
        return {**told, "entry": await described(inside, posixpath.join(root, told["name"]), user)}
    except NotFound:
        return told


def _watch_params(asked: Watching, user: str | None) -> dict[str, Any]:
    return as_root({"path": asked.path, "recursive": asked.recursive}, user)


async def create_watcher(ask: Ask) -> None:
    asked, user = await ask.body(Watching), ask.user()
    inside = await ask.guest()
    params = _watch_params(asked, user)
    try:
        watcher_id = await ask.control.watchers.create(ask.sandbox_id, inside, params, (asked, user))
    except (InvalidArgument, NotFound) as error:
        raise _watch_refusal(error, asked.path) from error
    await ask.answer({"watcherId": watcher_id})


async def watcher_events(ask: Ask) -> None:
    asked = await ask.body(WatcherName)
    inside = await ask.guest()  # of one that has ended that is what is told
    seen = await ask.control.watchers.take(ask.sandbox_id, asked.watcher_id)
    watching, user = seen.note
    told = [event for event in (change(value, seen.root) for value in seen.changes) if event is not None]
    await ask.answer({"events": [await _with_entry(event, watching, inside, seen.root, user) for event in told]})


async def remove_watcher(ask: Ask) -> None:
    asked = await ask.body(WatcherName)
    await ask.guest()
    ask.control.watchers.remove(ask.sandbox_id, asked.watcher_id)
    await ask.answer({})


_SERVICE: Final = "/filesystem.Filesystem/"

OPERATIONS: Final = (
    Operation("POST", _SERVICE + "Stat", stat_path, reads=True),
    Operation("POST", _SERVICE + "MakeDir", make_dir),
    Operation("POST", _SERVICE + "Move", move),
    Operation("POST", _SERVICE + "ListDir", list_dir, reads=True),
    Operation("POST", _SERVICE + "Remove", remove),
    Operation("POST", _SERVICE + "WatchDir", watch_dir, reads=True),
    Operation("POST", _SERVICE + "CreateWatcher", create_watcher),
    Operation("POST", _SERVICE + "GetWatcherEvents", watcher_events, reads=True),
    Operation("POST", _SERVICE + "RemoveWatcher", remove_watcher),
)
