"""Network namespaces by name: made, stepped into and removed, in the form that `ip netns` gives them.

A namespace lives as long as something holds it; here that is a mount on a file below /run/netns. A thread makes one by
stepping into it, so each act begins and ends at home. No program is started: these are a few system calls,
and a program costs more than all of them together.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
from collections.abc import Iterator

from atoll.node.names import NETNS_FOLDER

_CLONE_NEWNET = 0x40000000
_MS_BIND, _MS_REC, _MS_SHARED = 0x1000, 0x4000, 0x100000
_MNT_DETACH = 2
_HERE = "/proc/thread-self/ns/net"

_libc = ctypes.CDLL(None, use_errno=True)


def create(name: str) -> None:
    """A new and empty namespace. FileExistsError if there is something of that name."""
    _share_folder()
    path = NETNS_FOLDER / name
    os.close(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444))
    with _back_home():
        _must(_libc.unshare(_CLONE_NEWNET))
        _mount(_HERE, str(path), _MS_BIND)


def remove(name: str) -> None:
    """Let go of a namespace; idempotent. A file without a mount on it is what a kill in the middle of a create left."""
    path = NETNS_FOLDER / name
    if _libc.umount2(os.fsencode(path), _MNT_DETACH) != 0 and ctypes.get_errno() not in (errno.EINVAL, errno.ENOENT):
        raise _error()
    path.unlink(missing_ok=True)


@contextlib.contextmanager
def opened(name: str) -> Iterator[int]:
    """A descriptor of a namespace, by its name or its whole path, for as long as the block lasts."""
    fd = os.open(NETNS_FOLDER / name, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def inside(fd: int) -> Iterator[None]:
    """Step into a namespace and out again. There must be no `await` inside: the whole thread is in there."""
    with _back_home():
        _must(_libc.setns(fd, _CLONE_NEWNET))
        yield


@contextlib.contextmanager
def _back_home() -> Iterator[None]:
    home = os.open(_HERE, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield
    finally:
        if _libc.setns(home, _CLONE_NEWNET) != 0:
            os.abort()  # a server whose thread is lost in a sandbox's namespace must not go on
        os.close(home)


def _share_folder() -> None:
    """Mounts below the folder must come and go in every mount namespace, or a copy in one of them keeps a removed
    network namespace alive.
    """
    NETNS_FOLDER.mkdir(mode=0o755, parents=True, exist_ok=True)
    folder = str(NETNS_FOLDER)
    try:
        _mount("", folder, _MS_SHARED | _MS_REC)
    except OSError as error:
        if error.errno != errno.EINVAL:  # which says that it is no mount yet
            raise
        _mount(folder, folder, _MS_BIND | _MS_REC)
        _mount("", folder, _MS_SHARED | _MS_REC)


def _mount(source: str, target: str, flags: int) -> None:
    _must(_libc.mount(source.encode(), os.fsencode(target), b"none", ctypes.c_ulong(flags), None))


def _must(result: int) -> None:
    if result != 0:
        raise _error()


def _error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
