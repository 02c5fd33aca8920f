"""Changes to files other than their bytes: move, copy, remove, folders, rights, owners, links, times, attributes."""

from __future__ import annotations

import base64
import binascii
import errno
import os
import shutil
import stat as modes
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from atoll.guest import giving, users
from atoll.guest.channel import Channel
from atoll.guest.descent import Descent, each_below, remove_tree
from atoll.guest.failure import Refused
from atoll.guest.listing import Describer
from atoll.guest.params import Params, flag, integer, optional_integer, path, text
from atoll.guest.users import User
from atoll.model import limits

_FULL = (errno.ENOSPC, errno.EDQUOT)


def described(name: str, found: os.stat_result) -> Params:
    return Describer().entry(name, found)


def move(user: User, params: Params, channel: Channel) -> None:
    source, target = path(params, user.home), path(params, user.home, "target")
    os.lstat(source)
    if not flag(params, "overwrite", True) and os.path.lexists(target):
        raise Refused("exists", f"{target}: exists")
    if flag(params, "parents"):
        giving.make_folders(os.path.dirname(target.rstrip("/")), user, exist_ok=True)
    try:
        os.rename(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise OSError(error.errno, error.strerror, _blamed(source, target)) from None
        _move_across(source, target)
        giving.give_all(target, user)
    channel.send_ok(described(target, os.lstat(target)))


def _blamed(source: str, target: str) -> str:
    """The half of a move that is wrong: most often the folder it goes to."""
    return source if os.path.isdir(os.path.dirname(target.rstrip("/"))) and not os.path.lexists(target) else target


def copy(user: User, params: Params, channel: Channel) -> None:
    source, target = path(params, user.home), path(params, user.home, "target")
    found = os.stat(source)
    if not flag(params, "overwrite", True) and os.path.lexists(target):
        raise Refused("exists", f"{target}: exists")
    if flag(params, "parents"):
        os.makedirs(os.path.dirname(target.rstrip("/")), exist_ok=True)
    if not modes.S_ISDIR(found.st_mode):
        _copy_file(source, target)
    else:
        _copy_tree(source, target)
    channel.send_ok(described(target, os.lstat(target)))


def _move_across(source: str, target: str) -> None:
    """To another mount: a copy beside the target, which takes its place when it is complete, as a rename would."""
    found = os.lstat(source)
    if not os.access(os.path.dirname(source.rstrip("/")), os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), source)  # it could not be removed afterwards
    temporary = _temporary_for(target)
    try:
        if modes.S_ISLNK(found.st_mode):
            os.symlink(os.readlink(source), temporary)
        elif modes.S_ISDIR(found.st_mode):
            _copy_tree(source, temporary, follow=False)
        else:
            _copy_file(source, temporary, follow=False)
        os.rename(temporary, target)
    except BaseException as error:
        _discard(temporary)
        if isinstance(error, OSError) and error.filename == temporary:
            raise OSError(error.errno, error.strerror, target) from None
        raise
    if modes.S_ISDIR(found.st_mode):
        remove_tree(source)
    else:
        os.unlink(source)


def _temporary_for(target: str) -> str:
    return os.path.join(os.path.dirname(target.rstrip("/")), f".atoll-{os.urandom(8).hex()}")


def _discard(name: str) -> None:
    if os.path.isdir(name) and not os.path.islink(name):
        remove_tree(name, leave=True)
    else:
        with suppress(OSError):
            os.unlink(name)


def _copy_tree(source: str, target: str, *, follow: bool = True) -> None:
    """All that can be copied is; then the first thing that could not be is told."""
    if os.path.realpath(target).startswith(os.path.realpath(source) + "/"):
        raise Refused("invalid_argument", "a folder cannot be copied into itself")
    os.makedirs(target, exist_ok=True)
    with Descent(source, follow=follow) as here, Descent(target, follow=True) as there:
        failed = _Copying(here, there).run()
    if failed:
        raise next((error for error in failed if error.errno in _FULL), failed[0])


class _Copying:
    """What is in one folder, into another."""

    def __init__(self, source: Descent, target: Descent) -> None:
        self._source = source
        self._target = target
        self._failed: list[OSError] = []
        self._full = False

    def run(self) -> list[OSError]:
        waiting = [self._copy_entries()]
        while not self._full:
            if waiting[-1]:
                name = waiting[-1].pop()
                if self._did(name, partial(self._go_down, name)):
                    waiting.append(self._copy_entries())
                continue
            self._did("", lambda: shutil.copystat(self._source.near(), self._target.near()))
            waiting.pop()
            if not waiting:
                break
            self._source.up()
            self._target.up()
        return self._failed

    def _copy_entries(self) -> list[str]:
        """All but folders; which of these there are."""
        folders: list[str] = []
        entries: list[tuple[str, bool]] = []
        self._did("", lambda: entries.extend(self._source.entries()))
        for name, is_folder in entries:
            if is_folder:
                folders.append(name)
            elif not self._did(name, partial(self._copy_entry, name)) and self._full:
                return []  # nothing more would fit
        return folders

    def _copy_entry(self, name: str) -> None:
        source, target = self._source.near(name), self._target.near(name)
        if os.path.islink(source):
            _copy_link(source, target)
        else:
            _copy_file(source, target, follow=False)

    def _go_down(self, name: str) -> None:
        was_there = os.path.isdir(self._target.near(name))
        if not was_there:
            os.mkdir(name, dir_fd=self._target.fd)
        self._source.down(name)
        try:
            self._target.down(name, links=was_there)
        except BaseException:
            self._source.up()
            raise

    def _did(self, name: str, act: Callable[[], None]) -> bool:
        """What fails is told of at the end, by its whole name."""
        try:
            act()
        except OSError as error:
            near = isinstance(error.filename, str) and error.filename.startswith(self._target.near())
            told = (self._target if near else self._source).path(name)
            self._failed.append(OSError(error.errno, error.strerror, told))
            self._full = error.errno in _FULL
            if not self._full:
                del self._failed[1:]
            return False
        return True


def _copy_link(source: str, target: str) -> None:
    temporary = _temporary_for(target)
    try:
        os.symlink(os.readlink(source), temporary)
        os.replace(temporary, target)
    except OSError as error:
        _discard(temporary)
        raise OSError(error.errno, error.strerror, target) from None


def _copy_file(source: str, target: str, *, follow: bool = True) -> None:
    """Beside the target first, so that a full disk leaves the old one intact."""
    if os.path.isdir(target):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), target)
    if os.path.islink(target):
        target = os.path.realpath(target)
    temporary = _temporary_for(target)
    fd = _open_source(source, follow=follow)
    try:
        shutil.copy2(f"/proc/self/fd/{fd}", temporary)
        os.replace(temporary, target)
    except BaseException as error:
        _discard(temporary)
        if isinstance(error, OSError):
            blamed = target if temporary in (error.filename, error.filename2) else source
            raise OSError(error.errno, error.strerror, blamed) from None
        raise
    finally:
        os.close(fd)


def _open_source(source: str, *, follow: bool) -> int:
    """A regular file, and the one that it was found to be: what takes its place is not followed."""
    if not modes.S_ISREG(os.stat(source, follow_symlinks=follow).st_mode):
        raise OSError(errno.EINVAL, "not a regular file", source)
    fd = os.open(source, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW))
    if modes.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise OSError(errno.EINVAL, "not a regular file", source)


def remove(user: User, params: Params, channel: Channel) -> None:
    name = path(params, user.home)
    if os.path.realpath(name) == "/":
        raise Refused("invalid_argument", "the root folder cannot be removed")
    try:
        found = os.lstat(name)
    except FileNotFoundError:
        if flag(params, "missing_ok"):
            channel.send_ok({"removed": False})
            return
        raise
    if not modes.S_ISDIR(found.st_mode):
        os.unlink(name)
    elif flag(params, "recursive"):
        remove_tree(name)
    else:
        os.rmdir(name)
    channel.send_ok({"removed": True})


def mkdir(user: User, params: Params, channel: Channel) -> None:
    name = path(params, user.home)
    existed = os.path.isdir(name)
    if existed and not flag(params, "exist_ok", True):
        raise Refused("exists", f"{name}: exists")
    if not existed:
        if flag(params, "parents", True):
            giving.make_folders(name, user)
        else:
            os.mkdir(name)
            giving.give(name, user)
        mode = optional_integer(params, "mode", high=0o7777)
        if mode is not None:
            os.chmod(name, mode)
    channel.send_ok({"created": not existed, **described(name, os.stat(name))})


def chmod(user: User, params: Params, channel: Channel) -> None:
    name, mode = path(params, user.home), integer(params, "mode", high=0o7777)
    os.chmod(name, mode)
    for folder, entry in each_below(name, follow=True) if flag(params, "recursive") else ():
        if not modes.S_ISLNK(os.lstat(entry, dir_fd=folder).st_mode):
            os.chmod(entry, mode, dir_fd=folder)
    channel.send_ok(described(name, os.stat(name)))


def chown(user: User, params: Params, channel: Channel) -> None:
    """`owner` and `group` by name or number; what is not given stays."""
    name = path(params, user.home)
    uid = users.look_up(params["owner"]).uid if params.get("owner") is not None else -1
    gid = _group(params["group"]) if params.get("group") is not None else -1
    os.chown(name, uid, gid, follow_symlinks=False)
    for folder, entry in each_below(name, follow=True) if flag(params, "recursive") else ():
        os.chown(entry, uid, gid, dir_fd=folder, follow_symlinks=False)
    channel.send_ok(described(name, os.lstat(name)))


def _group(wanted: object) -> int:
    _, groups = users.names()
    for gid, name in groups.items():
        if wanted in (name, gid):
            return gid
    if str(wanted).isdecimal() and int(str(wanted)) < 2**32 - 1:
        return int(str(wanted))
    raise Refused("unknown_user", f"there is no group {wanted!r} in this sandbox")


def symlink(user: User, params: Params, channel: Channel) -> None:
    """`path` becomes a link that says `target`, word for word."""
    name, target = path(params, user.home), text(params, "target", chars_max=limits.PATH_BYTES_MAX - 1)
    os.symlink(target, name)
    channel.send_ok(described(name, os.lstat(name)))


def touch(user: User, params: Params, channel: Channel) -> None:
    name = path(params, user.home)
    now_ns = time.time_ns()
    times_ns = integer(params, "atime_ns", now_ns), integer(params, "mtime_ns", now_ns)

    def set_times(file: str | int) -> None:
        if params.get("atime_ns") is None and params.get("mtime_ns") is None:
            os.utime(file)  # to now: who may write a file may do that, whoever's it is
        else:
            os.utime(file, ns=times_ns)

    try:
        set_times(name)
    except FileNotFoundError:
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o644)
        try:
            set_times(fd)
        finally:
            os.close(fd)
    channel.send_ok(described(name, os.stat(name)))


def _attribute(params: Params, *default: str) -> str:
    name = text(params, "name", *default)
    if len(os.fsencode(name)) > limits.XATTR_NAME_BYTES_MAX:
        raise Refused("invalid_argument", f"the name of an attribute has {limits.XATTR_NAME_BYTES_MAX} bytes at most")
    return name


def xattr_get(user: User, params: Params, channel: Channel) -> None:
    """All attributes, or the one that is named; values in base64."""
    name = path(params, user.home)
    wanted = _attribute(params, "")
    found = {key: os.getxattr(name, key) for key in ([wanted] if wanted else os.listxattr(name)[:1024])}
    if sum(map(len, found.values())) > limits.FRAME_BYTES_MAX // 2:
        raise Refused("too_large", f"{name}: too many attributes; ask for one by name")
    channel.send_ok({"attributes": {key: base64.b64encode(value).decode() for key, value in found.items()}})


def xattr_set(user: User, params: Params, channel: Channel) -> None:
    """A value in base64; without one the attribute is removed."""
    name, key = path(params, user.home), _attribute(params)
    if params.get("value") is None:
        os.removexattr(name, key)
    else:
        try:
            value = base64.b64decode(text(params, "value"), validate=True)
        except binascii.Error:
            raise Refused("invalid_argument", "value must be base64") from None
        if len(value) > limits.XATTR_BYTES_MAX:
            raise Refused("too_large", "an attribute holds 64 KiB at most")
        os.setxattr(name, key, value)
    channel.send_ok({})
