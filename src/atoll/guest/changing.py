"""Changes to files other than their bytes: move, copy, remove, folders, rights, owners, links, times, attributes."""

from __future__ import annotations

import base64
import binascii
import errno
import os
import shutil
import stat as modes
import time
from contextlib import suppress

from atoll.guest import giving, users
from atoll.guest.channel import Channel
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
            _copy_tree(source, temporary)
        else:
            _copy_file(source, temporary)
        os.rename(temporary, target)
    except BaseException as error:
        _discard(temporary)
        if isinstance(error, OSError) and error.filename == temporary:
            raise OSError(error.errno, error.strerror, target) from None
        raise
    if modes.S_ISDIR(found.st_mode):
        shutil.rmtree(source)
    else:
        os.unlink(source)


def _temporary_for(target: str) -> str:
    return os.path.join(os.path.dirname(target.rstrip("/")), f".atoll-{os.urandom(8).hex()}")


def _discard(name: str) -> None:
    if os.path.isdir(name) and not os.path.islink(name):
        shutil.rmtree(name, ignore_errors=True)
    else:
        with suppress(OSError):
            os.unlink(name)


def _copy_tree(source: str, target: str) -> None:
    """All that can be copied is; then the first thing that could not be is told."""
    if os.path.realpath(target).startswith(os.path.realpath(source) + "/"):
        raise Refused("invalid_argument", "a folder cannot be copied into itself")
    failed: list[OSError] = []
    _copy_folder(source, target, failed)
    if failed:
        raise next((error for error in failed if error.errno in _FULL), failed[0])


def _copy_folder(source: str, target: str, failed: list[OSError]) -> None:
    try:
        os.makedirs(target, exist_ok=True)
        with os.scandir(source) as found:
            entries = list(found)
    except OSError as error:
        failed.append(error)
        return
    for entry in entries:
        to = os.path.join(target, entry.name)
        try:
            if entry.is_symlink():
                _copy_link(entry.path, to)
            elif entry.is_dir(follow_symlinks=False):
                _copy_folder(entry.path, to, failed)
            else:
                _copy_file(entry.path, to)
        except OSError as error:
            failed.append(error)
        if failed and failed[-1].errno in _FULL:
            return  # nothing more would fit
        del failed[1:]
    try:
        shutil.copystat(source, target)
    except OSError as error:
        failed.append(error)


def _copy_link(source: str, target: str) -> None:
    temporary = _temporary_for(target)
    try:
        os.symlink(os.readlink(source), temporary)
        os.replace(temporary, target)
    except OSError as error:
        _discard(temporary)
        raise OSError(error.errno, error.strerror, target) from None


def _copy_file(source: str, target: str) -> None:
    """Beside the target first, so that a full disk leaves the old one intact."""
    if os.path.isdir(target):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), target)
    if not modes.S_ISREG(os.stat(source).st_mode):
        raise OSError(errno.EINVAL, "not a regular file", source)
    target = os.path.realpath(target)
    temporary = _temporary_for(target)
    try:
        shutil.copy2(source, temporary)
        os.replace(temporary, target)
    except BaseException as error:
        _discard(temporary)
        if isinstance(error, OSError) and temporary in (error.filename, error.filename2):
            raise OSError(error.errno, error.strerror, target) from None
        raise


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
        shutil.rmtree(name)
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
    for folder, folders, files in os.walk(name) if flag(params, "recursive") else ():
        for entry in (*folders, *files):
            full = os.path.join(folder, entry)
            if not os.path.islink(full):
                os.chmod(full, mode)
    channel.send_ok(described(name, os.stat(name)))


def chown(user: User, params: Params, channel: Channel) -> None:
    """`owner` and `group` by name or number; what is not given stays."""
    name = path(params, user.home)
    uid = users.look_up(params["owner"]).uid if params.get("owner") is not None else -1
    gid = _group(params["group"]) if params.get("group") is not None else -1
    os.chown(name, uid, gid, follow_symlinks=False)
    for folder, folders, files in os.walk(name) if flag(params, "recursive") else ():
        for entry in (*folders, *files):
            os.chown(os.path.join(folder, entry), uid, gid, follow_symlinks=False)
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


def xattr_get(user: User, params: Params, channel: Channel) -> None:
    """All attributes, or the one that is named; values in base64."""
    name = path(params, user.home)
    wanted = text(params, "name", "")
    found = {key: os.getxattr(name, key) for key in ([wanted] if wanted else os.listxattr(name)[:1024])}
    if sum(map(len, found.values())) > limits.FRAME_BYTES_MAX // 2:
        raise Refused("too_large", f"{name}: too many attributes; ask for one by name")
    channel.send_ok({"attributes": {key: base64.b64encode(value).decode() for key, value in found.items()}})


def xattr_set(user: User, params: Params, channel: Channel) -> None:
    """A value in base64; without one the attribute is removed."""
    name, key = path(params, user.home), text(params, "name", chars_max=255)
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
