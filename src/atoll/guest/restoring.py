"""A file of an earlier time, put back as it was: with its owner, rights, time and attributes, from its first moment on.

Folders above it that are not there any more come back as they were, too; what is there stays as it is.
"""

from __future__ import annotations

import base64
import os
from contextlib import suppress

from atoll.guest.beside import write_fully
from atoll.guest.channel import Channel
from atoll.guest.failure import Refused
from atoll.guest.params import Params, integer, path, record
from atoll.guest.users import User

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ID_MAX = 2**32 - 2


def put_back(user: User, params: Params, channel: Channel) -> None:
    """It takes the place of whatever has its name, once all of it is here; a link is not followed."""
    name, likeness = path(params, user.home), record(params, "likeness")
    folder = os.path.dirname(name)
    _make_folders(folder, params.get("folders"))
    temporary = os.path.join(folder, f".atoll-{os.urandom(8).hex()}")
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            for chunk in channel.read_upload():
                write_fully(fd, chunk)
            _make_alike(fd, likeness)
        finally:
            os.close(fd)
        os.replace(temporary, name)
    except BaseException as error:
        with suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError):
            raise OSError(error.errno, error.strerror, name) from None
        raise
    channel.send_ok({})


def _make_folders(folder: str, likenesses: object) -> None:
    """`likenesses` are those of all folders on the way, from the top."""
    names = [name for name in folder.split("/") if name]
    if not isinstance(likenesses, list) or len(likenesses) != len(names):
        raise Refused("invalid_argument", "folders must be a list, one for each folder of the path")
    above = ""
    for name, likeness in zip(names, likenesses, strict=True):
        above += f"/{name}"
        if os.path.isdir(above):
            continue
        os.mkdir(above, 0o700)
        fd = os.open(above, _FOLDER)
        try:
            _make_alike(fd, likeness if isinstance(likeness, dict) else {})
        finally:
            os.close(fd)


def _make_alike(fd: int, likeness: Params) -> None:
    """The owner first: whoever is given a file loses its special rights. Some filesystems know no attributes."""
    os.fchown(fd, integer(likeness, "uid", high=_ID_MAX), integer(likeness, "gid", high=_ID_MAX))
    for key, value in record(likeness, "attributes").items():
        with suppress(OSError):
            os.setxattr(fd, key, base64.b64decode(value))
    os.fchmod(fd, integer(likeness, "mode", high=0o7777))
    moment = integer(likeness, "mtime_ns", low=-(2**63))
    os.utime(fd, ns=(moment, moment))
