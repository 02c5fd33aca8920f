"""Changes to files other than their bytes: move, copy, remove, folders, rights, owners, links, times, attributes."""

from __future__ import annotations

import base64
import binascii
import errno
import os
import shutil
import stat as modes
import time

from atoll.guest import giving, users
from atoll.guest.channel import Channel
from atoll.guest.failure import Refused
from atoll.guest.listing import Describer
from atoll.guest.params import Params, flag, integer, optional_integer, path, text
from atoll.guest.users import User
from atoll.model import limits


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
        shutil.move(source, target)  # to another mount
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
        if not modes.S_ISREG(found.st_mode):
            raise Refused("invalid_argument", f"{source}: not a regular file")
        _copy_file(source, target)
    else:
        if os.path.realpath(target).startswith(os.path.realpath(source) + "/"):
            raise Refused("invalid_argument", "a folder cannot be copied into itself")
        try:
            shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
        except shutil.Error as error:
            raise Refused("permission_denied", f"not all could be copied: {error.args[0][0][2]}") from None
    channel.send_ok(described(target, os.lstat(target)))


def _copy_file(source: str, target: str) -> None:
    """Beside the target first, so that a full disk leaves the old one intact."""
    if os.path.isdir(target):
        raise Refused("is_directory", f"{target}: is a directory")
    target = os.path.realpath(target)
    temporary = os.path.join(os.path.dirname(target), f".atoll-{os.urandom(8).hex()}")
    try:
        shutil.copy2(source, temporary)
        os.replace(temporary, target)
    except BaseException as error:
        if os.path.lexists(temporary):
            os.unlink(temporary)
        if isinstance(error, OSError) and error.filename == temporary:
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
    os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o644))
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
