"""Watching a folder: an event for each change, also below it, and one that says so when changes were lost."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import select
import stat as modes
import struct
import time
from typing import NamedTuple

from atoll.guest.channel import Channel
from atoll.guest.failure import Disconnected, Refused
from atoll.guest.listing import walk
from atoll.guest.params import Params, flag, path
from atoll.guest.users import User
from atoll.model import limits
from atoll.wire import guest as wire

_EVENT = struct.Struct("iIII")
_IN_MODIFY, _IN_ATTRIB, _IN_CLOSE_WRITE = 0x2, 0x4, 0x8
_IN_MOVED_FROM, _IN_MOVED_TO, _IN_CREATE, _IN_DELETE, _IN_DELETE_SELF = 0x40, 0x80, 0x100, 0x200, 0x400
_IN_MOVE_SELF, _IN_UNMOUNT, _IN_Q_OVERFLOW, _IN_IGNORED, _IN_ISDIR = 0x800, 0x2000, 0x4000, 0x8000, 0x40000000
_IN_NONBLOCK, _IN_CLOEXEC, _IN_DONT_FOLLOW = 0x800, 0x80000, 0x2000000
_NAMES = {
    _IN_CREATE: "created",
    _IN_MODIFY: "modified",
    _IN_CLOSE_WRITE: "written",
    _IN_ATTRIB: "attributes",
    _IN_DELETE: "removed",
    _IN_MOVED_FROM: "moved_from",
    _IN_MOVED_TO: "moved_to",
}
# What `writing` fills before it takes the place of a file: a reader of changes sees only the file.
_TEMPORARY = re.compile(r"\.atoll-[0-9a-f]{16}")
_MASK = sum(_NAMES) | _IN_DELETE_SELF | _IN_MOVE_SELF


class Change(NamedTuple):
    watch: int
    mask: int
    cookie: int
    name: str


def parse_changes(data: bytes) -> list[Change]:
    """What the kernel wrote, entry by entry."""
    changes = []
    position = 0
    while position + _EVENT.size <= len(data):
        watch, mask, cookie, length = _EVENT.unpack_from(data, position)
        position += _EVENT.size
        name = data[position : position + length].rstrip(b"\0")
        position += length
        changes.append(Change(watch, mask, cookie, os.fsdecode(name)))
    return changes


class Inotify:
    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.fd = int(self._libc.inotify_init1(_IN_NONBLOCK | _IN_CLOEXEC))
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        self.folders: dict[int, str] = {}
        self.adds = 0
        self._added: dict[int, int] = {}  # at which of all additions each was added last

    def add(self, folder: str) -> None:
        if not os.access(
            folder, os.R_OK, follow_symlinks=False
        ):  # Linux asks for this right; the sandbox's kernel does not
            os.lstat(folder)  # one that is gone is refused nothing
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder)
        if len(self.folders) >= limits.WATCH_FOLDERS_MAX:
            raise Refused("too_large", f"more than {limits.WATCH_FOLDERS_MAX} folders to watch")
        watch = int(self._libc.inotify_add_watch(self.fd, os.fsencode(folder), _MASK | _IN_DONT_FOLLOW))
        if watch < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), folder)
        self.folders[watch] = folder
        self.adds += 1
        self._added[watch] = self.adds

    def rename(self, old: str, new: str) -> None:
        """Watches stay on a folder that was moved; only its name is another."""
        for watch, folder in self.folders.items():
            if folder == old or folder.startswith(old + "/"):
                self.folders[watch] = new + folder[len(old) :]

    def forget(self, watch: int) -> None:
        self.folders.pop(watch, None)
        self._added.pop(watch, None)

    def leave(self, name: str, adds: int) -> None:
        """A folder and all below it, but for what was added since there were so many additions."""
        for watch, folder in list(self.folders.items()):
            if (folder == name or folder.startswith(name + "/")) and self._added[watch] <= adds:
                self._libc.inotify_rm_watch(self.fd, watch)
                self.forget(watch)


def watch(user: User, params: Params, channel: Channel) -> None:
    """Until the client leaves or the folder is gone."""
    root = os.path.realpath(path(params, user.home))
    if not modes.S_ISDIR(os.stat(root).st_mode):
        raise Refused("not_directory", f"{root}: not a directory")
    inotify = Inotify()
    try:
        Watch(root, inotify, channel, recursive=flag(params, "recursive")).run()
    finally:
        os.close(inotify.fd)


class Outbox:
    """Events on their way to a client who may be slow.

    The kernel of a sandbox keeps changes without a bound, so they are always read, and here is the bound: what does not
    fit is dropped, and the client is told so as soon as it has read what is before it.
    """

    def __init__(self, channel: Channel, root: str) -> None:
        self._channel = channel
        self._root = root
        self._waiting = bytearray()
        self._lost = False
        channel.socket.setblocking(False)

    def add(self, kind: str, value: Params) -> None:
        if self._lost:
            return
        frame = wire.control({"event": {"type": kind, **value}})
        if len(self._waiting) + len(frame) > limits.WATCH_WAITING_BYTES_MAX:
            self._lost = True
        else:
            self._waiting += frame

    @property
    def is_empty(self) -> bool:
        return not self._waiting

    def flush(self) -> None:
        try:
            while self._waiting:
                del self._waiting[: self._channel.socket.send(self._waiting)]
                if not self._waiting and self._lost:
                    self._lost = False
                    self.add("overflow", {"path": self._root})
        except BlockingIOError:
            return
        except OSError as error:
            raise Disconnected(str(error)) from error

    def settle(self) -> None:
        """All that waits, and in whole frames: whatever is said next stands behind it. The client is waited for."""
        self._channel.socket.settimeout(limits.TRANSFER_STALL_S_MAX)
        self.flush()

    def end(self) -> None:
        self.settle()
        self._channel.send_end({"reason": "removed"})


class Moved(NamedTuple):
    """A folder on its way from one name to another, or out of sight."""

    name: str
    adds: int
    until_s: float


class Watch:
    def __init__(self, root: str, inotify: Inotify, channel: Channel, *, recursive: bool) -> None:
        self._root = root
        self._inotify = inotify
        self._channel = channel
        self._outbox = Outbox(channel, root)
        self._recursive = recursive
        self._unreadable: set[str] = set()  # folders that are left out until their rights change
        self._moved: dict[int, Moved] = {}  # by cookie
        self._published: set[int] = set()  # cookies of complete files on their way to their names

    def run(self) -> None:
        try:
            self._run()
        except Disconnected:
            raise
        except BaseException:  # of which the client hears
            self._outbox.settle()
            raise

    def _run(self) -> None:
        self._inotify.add(self._root)
        left_out = self._add_below(self._root, tell=False) if self._recursive else []
        self._outbox.add("watching", {"path": self._root, "folders": len(self._inotify.folders)})
        self._tell_unreadable(left_out)
        poll = select.poll()
        poll.register(self._inotify.fd, select.POLLIN)
        while True:
            self._outbox.flush()
            wanted = select.POLLIN if self._outbox.is_empty else select.POLLIN | select.POLLOUT
            poll.register(self._channel.socket, wanted)
            for fd, ready in poll.poll(self._wait_ms()):
                if fd == self._inotify.fd:
                    if not all(self._tell(change) for change in parse_changes(os.read(fd, 64 * limits.KIB))):
                        self._outbox.end()
                        return
                elif ready & ~select.POLLOUT:
                    raise Disconnected("the client left")
            self._leave_moved()

    def _wait_ms(self) -> float | None:
        """Until one that was moved must have come to its new name."""
        first = next(iter(self._moved.values()), None)
        return None if first is None else max(0.0, first.until_s - time.monotonic()) * 1000

    def _leave_moved(self) -> None:
        """Who did not come to a new name is out of sight: what happens in there has no name here."""
        now_s = time.monotonic()
        while (first := next(iter(self._moved), None)) is not None:
            moved = self._moved[first]
            if moved.until_s > now_s and len(self._moved) <= limits.WATCH_MOVES_MAX:
                return
            del self._moved[first]
            self._inotify.leave(moved.name, moved.adds)
            if moved.name not in self._inotify.folders.values():  # else there is another one of that name
                self._send("removed", moved.name, True)

    def _add_folder(self, name: str) -> bool:
        """Whether this user may watch it; one that is gone again is no matter."""
        try:
            self._inotify.add(name)
        except PermissionError:
            return False
        except (FileNotFoundError, NotADirectoryError):
            pass
        return True

    def _add_below(self, folder: str, *, tell: bool) -> list[str]:
        """Folders that appeared may hold more by now: what is in them is told as created, at worst twice.

        Which of them had to be left out.
        """
        left_out: list[str] = []
        try:
            for name, found, _ in walk(folder, limits.TREE_DEPTH_MAX, too_deep=left_out):
                is_folder = modes.S_ISDIR(found.st_mode)
                if is_folder and not self._add_folder(name):
                    left_out.append(name)
                if tell:
                    self._send("created", name, is_folder)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            pass  # the folder itself, which is told by who watches it
        return left_out

    def _tell_unreadable(self, names: list[str]) -> None:
        """What happens in there will not be told, unless its rights change."""
        for name in names:
            self._send("unreadable", name, True)
            _forget_many(self._unreadable)
            self._unreadable.add(name)

    def _send(self, kind: str, name: str, is_folder: bool, **more: object) -> None:
        self._outbox.add(kind, {"path": name, "directory": is_folder, **more})

    def _tell(self, change: Change) -> bool:
        if change.mask & _IN_Q_OVERFLOW:
            self._outbox.add("overflow", {"path": self._root})
            return True
        folder = self._inotify.folders.get(change.watch)
        if folder is None:
            return True
        if change.mask & (_IN_IGNORED | _IN_DELETE_SELF | _IN_UNMOUNT | _IN_MOVE_SELF):
            if change.mask & (_IN_IGNORED | _IN_UNMOUNT):
                self._inotify.forget(change.watch)
            return folder != self._root
        if _TEMPORARY.fullmatch(change.name):
            if change.mask & _IN_MOVED_FROM:
                _forget_many(self._published)
                self._published.add(change.cookie)
            return True
        name = os.path.join(folder, change.name) if change.name else folder
        if change.mask & _IN_MOVED_TO and change.cookie in self._published:
            self._published.discard(change.cookie)
            self._publish(change, name)
            return True
        is_folder = bool(change.mask & _IN_ISDIR)
        more = {"cookie": change.cookie} if change.cookie else {}
        self._send(
            next((word for bit, word in _NAMES.items() if change.mask & bit), "changed"), name, is_folder, **more
        )
        if is_folder and self._recursive:
            self._follow_folder(change, name)
        return True

    def _publish(self, change: Change, name: str) -> None:
        """What was filled out of sight is there: a file, or a folder that came from another mount."""
        if not change.mask & _IN_ISDIR:
            self._send("written", name, False)
            return
        self._send("created", name, True)
        if self._recursive:
            self._follow_folder(change, name)

    def _follow_folder(self, change: Change, name: str) -> None:
        if change.mask & _IN_MOVED_FROM:
            until_s = time.monotonic() + limits.WATCH_MOVE_S
            self._moved[change.cookie] = Moved(name, self._inotify.adds, until_s)
        elif change.mask & _IN_MOVED_TO and change.cookie in self._moved:
            self._inotify.rename(self._moved.pop(change.cookie).name, name)
        elif change.mask & (_IN_CREATE | _IN_MOVED_TO):
            self._tell_unreadable(self._add_below(name, tell=True) if self._add_folder(name) else [name])
        elif change.mask & _IN_ATTRIB and name in self._unreadable and self._add_folder(name):
            self._unreadable.discard(name)
            self._tell_unreadable(self._add_below(name, tell=True))


def _forget_many(waiting: set[int] | set[str]) -> None:
    """Of what is waited for and may never come, as the second half of a move out of sight."""
    if len(waiting) > limits.WATCH_MOVES_MAX:
        waiting.clear()
