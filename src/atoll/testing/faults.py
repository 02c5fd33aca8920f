"""A server that runs out of room, or dies, at a step that a test chooses: `python -m atoll.testing.faults serve ...`.

A step is a system call of the server by which something on the host changes. Before each one it is counted, and at the
one that was asked for it fails with ENOSPC, as on a disk that is full, or the server ends as by kill -9. Python tells
of most of them by itself (audit hooks); those it does not tell of are stood in for: writes, syncs, mounts, and SQLite's
own writes, through the door that SQLite has for this. Where no room is needed, a step is only one to be killed at:
control groups, programs that are started, and what a runtime is told to do.

    once    the step fails, and those after it do not
    full    the step fails, and so does each one after it that needs room; what gives room back works
    kill    the server is gone before the step

The plan lies in a file that test and server map into memory, so it is there after a kill, and costs nothing to look at.
"""

from __future__ import annotations

import builtins
import ctypes
import errno
import fcntl
import io
import mmap
import os
import runpy
import signal
import stat
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from atoll.node import beneath
from atoll.node.runtime import goferroot, sentrycall
from atoll.testing.server import Server

Mode = Literal["off", "once", "full", "kill"]
PLAN = "FAULT_PLAN"

_MODES: tuple[Mode, ...] = ("off", "once", "full", "kill")
_SHAPE = struct.Struct("=III")  # mode, at, seen


class Plan:
    """At which step what happens, shared by two processes. Steps count from 1."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.ftruncate(self._fd, _SHAPE.size)
        self._shared = mmap.mmap(self._fd, _SHAPE.size)
        self._threads = threading.Lock()

    def set(self, mode: Mode, at: int = 0) -> int:
        """Begin to count anew; answers how many steps there have been. One that is being judged is waited for."""
        with self._turn():
            seen = self._read()[2]
            _SHAPE.pack_into(self._shared, 0, _MODES.index(mode), at, 0)
        return seen

    @property
    def is_off(self) -> bool:
        return not self._read()[0]

    def fails(self, *, needs_room: bool) -> bool:
        """Count a step that is about to be done; whether it fails. The server may end here."""
        with self._turn():
            chosen, at, seen = self._read()
            mode = _MODES[chosen]
            if mode == "off" or (mode != "kill" and not needs_room):
                return False
            seen += 1
            _SHAPE.pack_into(self._shared, 0, chosen, at, seen)
            if mode == "kill" and seen == at:
                os.kill(os.getpid(), signal.SIGKILL)
            return seen == at if mode == "once" else mode == "full" and seen >= at

    def _read(self) -> tuple[int, int, int]:
        return _SHAPE.unpack_from(self._shared)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        with self._threads:
            fcntl.lockf(self._fd, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.lockf(self._fd, fcntl.LOCK_UN)


class FaultyServer(Server):
    """A real server whose luck is in the hands of the test."""

    module = "atoll.testing.faults"

    def __init__(self, data: Path, environment: dict[str, str]) -> None:
        path = data / "faults"
        self.plan = Plan(path)
        super().__init__(data, {**environment, PLAN: str(path)})


# --- inside the server ------------------------------------------------------------------------------------------------

_GROWS = {"os.mkdir": 0, "os.rename": 1, "os.link": 1, "os.symlink": 1, "os.truncate": 0, "os.chown": 0, "os.chmod": 0}
_GROWS |= {"os.setxattr": 0, "os.utime": 0}
"""Audit events of what needs room, and which of their arguments is the place."""
_SHRINKS = {"os.remove": 0, "os.rmdir": 0}
_GROUPS = "/sys/fs/cgroup/"
_BTRFS = 0x94
_BTRFS_DESTROY = 15
_BTRFS_GROWS = {23, 24, 26, 43}  # snapshot, subvolume, flags, limit


class Injection:
    """The server's side of a plan."""

    def __init__(self, plan: Plan, data: Path) -> None:
        self._plan = plan
        self._data = str(data.resolve())

    def install(self) -> None:
        sys.addaudithook(self._on_event)
        os.write = self._standing_in(os.write)
        os.pwrite = self._standing_in(os.pwrite)
        os.fsync = self._standing_in(os.fsync)
        beneath.rename, beneath.exchange = self._told(beneath.rename), self._told(beneath.exchange)
        # The kernel answers ENOSPC to a mount too: where there are too many of them.
        goferroot.mount_move, goferroot.root_pivot = self._told(goferroot.mount_move), self._told(goferroot.root_pivot)
        goferroot.old_root_unmount = self._told(goferroot.old_root_unmount)
        sentrycall.call = self._told(sentrycall.call, needs_room=False)
        builtins.open = io.open = self._opener(io.open)
        _sqlite_stand_in(self)

    def step(self, *, needs_room: bool = True) -> None:
        if self._plan.fails(needs_room=needs_room):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def fails(self) -> bool:
        return self._plan.fails(needs_room=True)

    def _on_event(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._plan.is_off:
            return
        if event in _GROWS:
            self._step_at(arguments[_GROWS[event]])
        elif event in _SHRINKS:
            self._step_at(arguments[_SHRINKS[event]], needs_room=False)
        elif event == "open" and _is_new(arguments[2]):
            self._step_at(arguments[0])
        elif event == "subprocess.Popen":
            self.step(needs_room=False)
        elif event == "fcntl.ioctl" and arguments[1] >> 8 & 0xFF == _BTRFS:
            number = arguments[1] & 0xFF
            if number in _BTRFS_GROWS or number == _BTRFS_DESTROY:
                self.step(needs_room=number != _BTRFS_DESTROY)

    def _step_at(self, place: object, *, needs_room: bool = True) -> None:
        if self.is_ours(place):
            self.step(needs_room=needs_room)
        elif _is_group(place):
            self.step(needs_room=False)

    def is_ours(self, place: object) -> bool:
        """Whether it lies in the data directory. A name without a folder is below one that is open, and is ours too."""
        if isinstance(place, int):
            try:
                opened = Path(f"/proc/self/fd/{place}").readlink()
                return stat.S_ISREG(os.fstat(place).st_mode) and self.is_ours(opened)
            except OSError:
                return False
        path = os.fsdecode(place) if isinstance(place, (str, bytes, os.PathLike)) else ""
        return bool(path) and (not path.startswith("/") or path.startswith((self._data + "/", "/proc/self/fd/")))

    def _standing_in(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def instead(fd: int, *arguments: Any) -> Any:
            if not self._plan.is_off:
                self._step_at(fd)
            return call(fd, *arguments)

        return instead

    def _told(self, call: Callable[..., Any], *, needs_room: bool = True) -> Callable[..., Any]:
        """Something that Python does not tell of."""

        def instead(*arguments: Any, **options: Any) -> Any:
            self.step(needs_room=needs_room)
            return call(*arguments, **options)

        return instead

    def _opener(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Files that are opened for writing, with a step before each write that reaches the system.

        So are the reads of one that is read piece by piece: between two of them a file is half on its way.
        """

        def instead(file: Any, mode: str = "r", buffering: int = -1, *arguments: Any, **options: Any) -> Any:
            bare = mode == "rb" and buffering == 0
            if self._plan.is_off or not (bare or set(mode) & set("wxa")) or "+" in mode or not self.is_ours(file):
                return call(file, mode, buffering, *arguments, **options)
            raw = _Raw(self, file, mode.replace("t", "").replace("b", ""), options.pop("closefd", True))
            if buffering == 0:
                return raw
            binary = io.BufferedWriter(raw)
            return binary if "b" in mode else io.TextIOWrapper(binary, *arguments, **options)

        return instead


def _is_group(place: object) -> bool:
    """Whether it lies in the tree of control groups; what this server writes there is its own."""
    if isinstance(place, int):
        try:
            place = Path(f"/proc/self/fd/{place}").readlink()
        except OSError:
            return False
    return isinstance(place, (str, os.PathLike)) and os.fsdecode(place).startswith(_GROUPS)


def _is_new(flags: int) -> bool:
    """Whether an open may make a file."""
    return bool(flags & os.O_CREAT) or flags & os.O_TMPFILE == os.O_TMPFILE


class _Raw(io.FileIO):
    def __init__(self, injection: Injection, file: Any, mode: str, closefd: bool) -> None:
        self._injection = injection
        super().__init__(file, mode, closefd)

    def write(self, data: Any) -> int:
        self._injection.step()
        return super().write(data)

    def read(self, size: int | None = -1, /) -> bytes:
        self._injection.step(needs_room=False)
        return super().read(size)


# --- inside SQLite ----------------------------------------------------------------------------------------------------

_ARGUMENTS = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64)
_CALL = ctypes.CFUNCTYPE(ctypes.c_ssize_t, *_ARGUMENTS, use_errno=True)
_SET = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_GET = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)
_kept: list[object] = []  # what C holds on to


class _Vfs(ctypes.Structure):
    _fields_ = (
        ("numbers", ctypes.c_int * 3),
        *((name, ctypes.c_void_p) for name in ("next", "name", "data")),
        ("calls", ctypes.c_void_p * 13),
        ("set_system_call", _SET),
        ("get_system_call", _GET),
    )


def _sqlite_stand_in(injection: Injection) -> None:
    """SQLite lets tests replace the system calls that it makes (sqlite3_vfs.xSetSystemCall)."""
    import _sqlite3

    library = ctypes.CDLL(_sqlite3.__file__)
    library.sqlite3_vfs_find.restype = ctypes.POINTER(_Vfs)
    vfs = library.sqlite3_vfs_find(None)
    for name in (b"pwrite", b"pwrite64", b"write"):
        found = vfs.contents.get_system_call(ctypes.cast(vfs, ctypes.c_void_p), name)
        if found:
            replacement = _replacement(injection, _CALL(found))
            _kept.append(replacement)
            address = ctypes.cast(replacement, ctypes.c_void_p)
            vfs.contents.set_system_call(ctypes.cast(vfs, ctypes.c_void_p), name, address)


def _replacement(injection: Injection, real: Any) -> Any:
    def write(fd: int, data: int, size: int, offset: int) -> int:
        if injection.fails():
            ctypes.set_errno(errno.ENOSPC)
            return -1
        return int(real(fd, data, size, offset))

    return _CALL(write)


def main() -> None:
    path = Path(os.environ[PLAN])
    Injection(Plan(path), path.parent).install()
    runpy.run_module("atoll", run_name="__main__")


if __name__ == "__main__":
    main()
