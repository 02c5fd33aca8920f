"""Another root for a box that is made and empty: the disk of a sandbox under a gofer that was started with another.

A gofer is a process in a mount namespace of its own, whose root is the box's disk with the binds on it. It looks there
only when its sentry starts or restores. So until then the disk can be another one: the new tree is mounted over the
root, the binds move there, and pivot_root gives it to every process that had the old one.

What lies on the disk was written by strangers. No link on it is followed, and nothing on it is opened but the folders
that the binds go on.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from atoll.node import beneath

_OPEN_TREE, _MOVE_MOUNT = 428, 429  # the same numbers on every architecture
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_OPEN_TREE_CLONE, _OPEN_TREE_CLOEXEC = 1, os.O_CLOEXEC
_FROM_ITSELF, _TO_ITSELF = 0x04, 0x40
_CLONE_FS, _CLONE_NEWNS = 0x200, 0x20000
_MNT_DETACH = 2
_HERE = -100

_libc = ctypes.CDLL(None, use_errno=True)


def is_possible() -> bool:
    return platform.machine() in _PIVOT_ROOT


def change(gofer_pid: int, root: Path, binds: Sequence[str]) -> None:
    """Raises OSError; the box is then not to be used any more."""
    _in_a_thread_of_its_own(lambda: _change(gofer_pid, root, [bind.lstrip("/") for bind in binds]))


def _in_a_thread_of_its_own(act: Callable[[], None]) -> None:
    """One that has been in another mount namespace is not used for anything else: it ends there."""
    failures: list[OSError] = []

    def run() -> None:
        try:
            act()
        except OSError as error:
            failures.append(error)

    thread = threading.Thread(target=run, name="gofer-root")
    thread.start()
    thread.join()
    if failures:
        raise failures[0]


def _change(gofer_pid: int, root: Path, binds: Sequence[str]) -> None:
    with contextlib.ExitStack() as opened:
        tree = _kept(opened, _open_tree(_HERE, str(root), _OPEN_TREE_CLONE))
        gofer_root = _kept(opened, os.open(f"/proc/{gofer_pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
        namespace = _kept(opened, os.open(f"/proc/{gofer_pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC))
        _must(_libc.unshare(_CLONE_FS))  # else the whole server would step over
        _must(_libc.setns(namespace, _CLONE_NEWNS))
        os.fchdir(gofer_root)
        os.chroot(".")
        moved = [_kept(opened, _open_tree(_HERE, bind, 0)) for bind in binds]
        mount_move(tree, _kept(opened, os.open(".", os.O_PATH | os.O_CLOEXEC)))
        targets = [_kept(opened, beneath.folder_open(tree, bind, links=False)) for bind in binds]
        for mount, target in zip(moved, targets, strict=True):
            mount_move(mount, target)
        os.fchdir(tree)
        root_pivot()
        old_root_unmount()


def _kept(opened: contextlib.ExitStack, fd: int) -> int:
    opened.callback(os.close, fd)
    return fd


def _open_tree(folder: int, path: str, flags: int) -> int:
    return _must(_libc.syscall(_OPEN_TREE, folder, os.fsencode(path), flags | _OPEN_TREE_CLOEXEC))


def mount_move(mount: int, target: int) -> None:
    _must(_libc.syscall(_MOVE_MOUNT, mount, b"", target, b"", _FROM_ITSELF | _TO_ITSELF))


def root_pivot() -> None:
    """Where this thread stands is the root from now on, for all who had the old one."""
    _must(_libc.syscall(_PIVOT_ROOT[platform.machine()], b".", b"."))


def old_root_unmount() -> None:
    """It is on top of the new one now."""
    _must(_libc.umount2(b".", _MNT_DETACH))


def _must(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
