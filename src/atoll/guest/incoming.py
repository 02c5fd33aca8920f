"""Large uploads that do not pass through here: the node writes the bytes to the disk, and we give them their place.

Who may write where is decided here as for every write, before the first byte and with the rights of the user. Only then
the node is told to put a file of that user's, which nobody else may read, into one folder of the sandbox's disk. It has
no name until it is whole; then it is moved from there to where it belongs.
"""

from __future__ import annotations

import os
import stat as modes
from contextlib import suppress

from atoll.guest.channel import Upload
from atoll.wire.guest import INCOMING_FOLDER

_FOLDER_MODE = 0o1733  # everybody may move out what is theirs; nobody sees or touches what is not


def prepare() -> None:
    """As root, when the sandbox boots: an empty folder. Without one, uploads come the usual way."""
    if os.path.islink(INCOMING_FOLDER):
        return  # it leads to what is somebody else's
    with suppress(OSError):
        os.makedirs(INCOMING_FOLDER, exist_ok=True)
        os.chmod(INCOMING_FOLDER, _FOLDER_MODE)
        for entry in list(os.scandir(INCOMING_FOLDER)):  # somebody ended in the moment before a move
            with suppress(OSError):
                (os.rmdir if entry.is_dir(follow_symlinks=False) else os.unlink)(entry.path)


def suits(folder: str, old: os.stat_result | None) -> bool:
    """Whether a file from there can be moved into this folder over the old one, and is then as if it was made here."""
    try:
        here, there = os.stat(folder), os.lstat(INCOMING_FOLDER)
    except OSError:
        return False
    ours = there.st_uid == 0 and there.st_mode == modes.S_IFDIR | _FOLDER_MODE and there.st_dev == here.st_dev
    # A folder may give its group to what is made in it; what is moved there keeps its own.
    plain = not here.st_mode & modes.S_ISGID and os.access(folder, os.W_OK | os.X_OK)
    user = (os.geteuid(), os.getegid())
    return ours and plain and (old is None or user[0] == 0 or (old.st_uid, old.st_gid) == user)


def receive(upload: Upload, name: str) -> str | None:
    """Where the whole upload lies, once it does; None if the node sends the bytes after all. `name` is for errors."""
    try:
        placed = upload.wait_placed({"uid": os.geteuid(), "gid": os.getegid()})
        if placed is None:
            return None
        _look_again()
    except OSError as error:
        raise OSError(error.errno, error.strerror, name) from None
    return os.path.join(INCOMING_FOLDER, os.path.basename(placed))


def _look_again() -> None:
    """Make the sandbox's kernel forget what it knows of the folder.

    It believes that the disk is its own. Once somebody has listed a folder, it knows all names in it, and asks for no
    other until it changes the folder itself.
    """
    name = os.path.join(INCOMING_FOLDER, f".atoll-{os.urandom(8).hex()}")
    os.mkdir(name, 0o700)
    os.rmdir(name)
