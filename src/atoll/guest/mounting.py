"""Volumes: the slots that every sandbox has from its start, bound to where their owner wants them; and a sync.

A slot is a folder that the host has put a volume behind, or an empty one that nobody can write to. A sandbox that was
restored may have it bound already, from the life that it was restored from.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from atoll.guest.channel import Channel
from atoll.guest.failure import Refused
from atoll.guest.params import Params
from atoll.model import limits

if TYPE_CHECKING:
    from atoll.guest.agent import Agent

_MS_BIND = 4096


def bind_all(_agent: Agent, params: Params, channel: Channel) -> None:
    """Bind slots to paths: `mounts` is a list of [slot, path]."""
    mounts = params.get("mounts")
    if not isinstance(mounts, list) or len(mounts) > 2 * limits.VOLUME_SLOTS:
        raise Refused("invalid_argument", "mounts must be a short list")
    for mount in mounts:
        if not isinstance(mount, list) or len(mount) != 2 or not all(isinstance(part, str) for part in mount):
            raise Refused("invalid_argument", "a mount is a slot and a path")
        slot, path = mount
        os.makedirs(path, exist_ok=True)
        if not _same(slot, path):
            bind(slot, path)
    channel.send_ok({})


def flush(_agent: Agent, _params: Params, channel: Channel) -> None:
    """All that was written is on the disk when this answers."""
    os.sync()
    channel.send_ok({})


def _same(slot: str, path: str) -> bool:
    one, other = os.stat(slot), os.stat(path)
    return (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)


def bind(source: str, path: str) -> None:
    import ctypes  # here, because what only reads this module does without

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(os.fsencode(source), os.fsencode(path), None, _MS_BIND, None) != 0:
        code = ctypes.get_errno() or errno.EIO
        raise OSError(code, os.strerror(code), path)
