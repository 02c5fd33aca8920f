"""What root makes for a user belongs to that user, and so do the folders that had to be made for it.

An operation that is asked for `as_root` is served by root's worker, while its `User` is the one whom it is done for.
Everywhere else the two are one, and nothing here changes anything.
"""

from __future__ import annotations

import os
from contextlib import suppress

from atoll.guest.descent import each_below
from atoll.guest.users import User


def is_due(user: User) -> bool:
    """Whether what is made here would belong to somebody else than this user."""
    return os.geteuid() != user.uid


def give(name: str, user: User) -> None:
    """The thing with this name, and not what a link leads to. Some filesystems know no owners."""
    if is_due(user):
        with suppress(OSError):
            os.chown(name, user.uid, user.gid, follow_symlinks=False)


def give_open(fd: int, user: User) -> None:
    with suppress(OSError):
        os.fchown(fd, user.uid, user.gid)


def give_all(name: str, user: User) -> None:
    """It, and all that is below it."""
    give(name, user)
    for folder, entry in each_below(name) if is_due(user) else ():
        with suppress(OSError):
            os.chown(entry, user.uid, user.gid, dir_fd=folder, follow_symlinks=False)


def make_folders(name: str, user: User, *, exist_ok: bool = False) -> None:
    """As `os.makedirs`: those that were there stay as they are, the others belong to the user."""
    if exist_ok and os.path.isdir(name):
        return
    missing = []
    above = name.rstrip("/")
    while is_due(user) and above and not os.path.lexists(above):
        if os.path.basename(above) not in ("", ".", ".."):  # a way through what is new leads out of it again
            missing.append(above)
        above = os.path.dirname(above)
    os.makedirs(name, exist_ok=exist_ok)
    for made in reversed(missing):
        give(made, user)
