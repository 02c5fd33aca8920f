"""What files there are and what they are: stat, list, find."""

from __future__ import annotations

import errno
import fnmatch
import os
import stat as modes
from collections.abc import Iterator

from atoll.guest import users
from atoll.guest.channel import Channel
from atoll.guest.failure import Refused
from atoll.guest.params import Params, flag, integer, path, text
from atoll.guest.users import User
from atoll.model import limits

_TYPES = {
    modes.S_IFREG: "file",
    modes.S_IFDIR: "directory",
    modes.S_IFLNK: "symlink",
    modes.S_IFIFO: "fifo",
    modes.S_IFSOCK: "socket",
    modes.S_IFCHR: "device",
    modes.S_IFBLK: "device",
}


def describe(name: str, found: os.stat_result) -> Params:
    return {
        "path": name,
        "name": os.path.basename(name.rstrip("/")) or "/",
        "type": _TYPES.get(modes.S_IFMT(found.st_mode), "unknown"),
        "size": found.st_size,
        "mode": modes.S_IMODE(found.st_mode),
        "uid": found.st_uid,
        "gid": found.st_gid,
        "mtime_ns": found.st_mtime_ns,
        "atime_ns": found.st_atime_ns,
        "ctime_ns": found.st_ctime_ns,
        "links": found.st_nlink,
        "inode": found.st_ino,
    }


class Describer:
    """Entries with the names of their owners, which are read once."""

    def __init__(self, xattr_prefix: str = "") -> None:
        self._users, self._groups = users.names()
        self._xattr_prefix = xattr_prefix

    def entry(self, name: str, found: os.stat_result) -> Params:
        value = describe(name, found)
        value["user"] = self._users.get(found.st_uid, str(found.st_uid))
        value["group"] = self._groups.get(found.st_gid, str(found.st_gid))
        if modes.S_ISLNK(found.st_mode):
            try:
                value["target"] = os.readlink(name)
            except OSError:
                value["target"] = None
            value["target_type"] = _target_type(name)
        elif self._xattr_prefix:
            value["xattrs"] = attributes(name, self._xattr_prefix)
        return value


def _target_type(link: str) -> str | None:
    try:
        return _TYPES.get(modes.S_IFMT(os.stat(link).st_mode), "unknown")
    except OSError:
        return None


def attributes(name: str, prefix: str) -> dict[str, str]:
    """The extended attributes below a prefix that are short texts; none where the filesystem has none."""
    found = {}
    try:
        for key in os.listxattr(name)[: limits.METADATA_ENTRIES_MAX * 4]:
            value = os.getxattr(name, key) if key.startswith(prefix) else b""
            if key.startswith(prefix) and len(value) <= limits.METADATA_VALUE_CHARS_MAX:
                found[key] = value.decode("utf-8", "replace")
    except OSError:
        return {}
    return found


def stat(user: User, params: Params, channel: Channel) -> None:
    name = path(params, user.home)
    value = _describer(params).entry(name, os.stat(name) if flag(params, "follow") else os.lstat(name))
    value["mime"] = _mime(name) if value["type"] == "file" else None
    channel.send_ok(value)


def _describer(params: Params) -> Describer:
    return Describer(text(params, "xattr_prefix", "", chars_max=255))


def _mime(name: str) -> str:
    import mimetypes  # only who asks for it pays for it

    return mimetypes.MimeTypes().guess_type(name)[0] or "application/octet-stream"


def walk(
    root: str,
    depth_max: int,
    *,
    hidden: bool = True,
    skipped: list[str] | None = None,
    too_deep: list[str] | None = None,
) -> Iterator[tuple[str, os.stat_result, int]]:
    """Everything below a folder: folders before what they hold, names in order, links not followed.

    Without `hidden`, nothing whose name begins with a dot, nor what is below it. Folders that cannot be read are added
    to `skipped`, and those at the greatest depth, whose content is left out, to `too_deep`.
    """
    waiting: list[tuple[str, int]] = [(root, 1)]
    while waiting:
        folder, depth = waiting.pop()
        try:
            found = _folder_entries(folder)
        except OSError as error:
            if folder == root:
                raise
            if skipped is not None and error.errno != errno.ENOENT:
                skipped.append(folder)
            continue  # gone, or not readable for this user: the rest is still worth listing
        below = []
        for name, status in found:
            if not hidden and name.startswith("."):
                continue
            path = os.path.join(folder, name)
            yield path, status, depth
            if not modes.S_ISDIR(status.st_mode):
                continue
            if depth < depth_max:
                below.append((path, depth + 1))
            elif too_deep is not None:
                too_deep.append(path)
        waiting += reversed(below)


def _folder_entries(folder: str) -> list[tuple[str, os.stat_result]]:
    """Names and what they are, in order. Through a descriptor: a name alone is found faster than a whole path."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        found = []
        with os.scandir(fd) as entries:
            for entry in entries:
                try:
                    found.append((entry.name, entry.stat(follow_symlinks=False)))
                except OSError:
                    continue  # gone since
    finally:
        os.close(fd)
    return sorted(found, key=lambda item: item[0])


class Batches:
    """Entries in frames of many, cut at the caller's limit."""

    def __init__(self, channel: Channel, entries_max: int) -> None:
        self._channel = channel
        self._entries_max = entries_max
        self._batch: list[Params] = []
        self._batch_chars = 0
        self.count = 0
        self.truncated = False

    def add(self, entry: Params) -> bool:
        """False when no more are wanted."""
        if self.count >= self._entries_max:
            self.truncated = True
            return False
        self.count += 1
        self._batch.append(entry)
        self._batch_chars += sum(len(value) for value in entry.values() if isinstance(value, str))
        # A character is at most 6 bytes of JSON for names, 12 beyond the basic plane.
        if len(self._batch) >= limits.LIST_BATCH_ENTRIES or self._batch_chars > 32 * limits.KIB:
            self.flush()
        return True

    def flush(self) -> None:
        if self._batch:
            self._channel.send_event("entries", {"entries": self._batch})
            self._batch = []
            self._batch_chars = 0

    def end(self, **more: object) -> None:
        self.flush()
        self._channel.send_end({"count": self.count, "truncated": self.truncated} | more)


def list_folder(user: User, params: Params, channel: Channel) -> None:
    root = path(params, user.home)
    if not modes.S_ISDIR(os.stat(root).st_mode):
        raise Refused("not_directory", f"{root}: not a directory")
    describer = _describer(params)
    entries_max = integer(params, "entries_max", limits.LIST_ENTRIES_MAX, low=1, high=limits.LIST_ENTRIES_MAX)
    batches = Batches(channel, entries_max)
    depth_max = integer(params, "depth", 1, low=1, high=limits.TREE_DEPTH_MAX)
    too_deep: list[str] = []
    for name, found, _ in walk(root, depth_max, hidden=flag(params, "hidden", True), too_deep=too_deep):
        if not batches.add(describer.entry(name, found)):
            break
    batches.end(**_cut(batches, depth_max, too_deep))


def _cut(batches: Batches, depth_max: int, too_deep: list[str]) -> dict[str, bool]:
    """A list is cut where there is more than it may hold, and where there is more below than anybody may ask for."""
    return {"truncated": batches.truncated or bool(too_deep and depth_max == limits.TREE_DEPTH_MAX)}


def find(user: User, params: Params, channel: Channel) -> None:
    """By a pattern on the name, or on the path below the root when the pattern holds a slash."""
    root = path(params, user.home)
    pattern = text(params, "pattern", "*", chars_max=limits.PATH_BYTES_MAX)
    kind = text(params, "type", "")
    match = Pattern(pattern)
    describer = Describer()
    batches = Batches(channel, integer(params, "entries_max", 10_000, low=1, high=limits.LIST_ENTRIES_MAX))
    depth_max = integer(params, "depth", limits.TREE_DEPTH_MAX, low=1, high=limits.TREE_DEPTH_MAX)
    too_deep: list[str] = []
    for name, found, _ in walk(root, depth_max, too_deep=too_deep):
        if kind and _TYPES.get(modes.S_IFMT(found.st_mode)) != kind:
            continue
        if match.matches(os.path.relpath(name, root)) and not batches.add(describer.entry(name, found)):
            break
    batches.end(**_cut(batches, depth_max, too_deep))


class Pattern:
    """A glob, on the name or on the whole path below the root."""

    def __init__(self, pattern: str) -> None:
        self._whole = "/" in pattern
        self._pattern = pattern.lstrip("/")

    def matches(self, relative: str) -> bool:
        name = relative if self._whole else os.path.basename(relative)
        if fnmatch.fnmatchcase(name, self._pattern):
            return True
        return self._pattern.startswith("**/") and fnmatch.fnmatchcase(name, self._pattern[3:])
