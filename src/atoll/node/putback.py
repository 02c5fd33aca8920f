"""One file of a snapshot, put into a sandbox as it was."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import IO

from atoll.model import limits
from atoll.node.disks.original import Original
from atoll.node.instance import Instance


async def put_back(instance: Instance, path: str, original: Original) -> None:
    """It appears whole, with its owner, rights, time and attributes. Closes the original."""
    with os.fdopen(original.fd, "rb", buffering=0) as file, instance.activity.calling():
        if instance.guest_is_ours():
            params = {"path": path, "user": "root", "likeness": original.likeness, "folders": original.folders}
            await instance.guest.upload("file.put_back", params, _chunks(file))
        else:
            await _write(instance, path, original, file)


async def _write(instance: Instance, path: str, original: Original, file: IO[bytes]) -> None:
    """By the words of an earlier version: its owner comes a moment after it, and its time is that of the writing."""
    like = original.likeness
    params = {"path": path, "user": "root", "mode": like["mode"] & 0o777, "parents": True}
    await instance.guest.upload("file.write", params, _chunks(file))
    await instance.guest.call("file.chown", {"path": path, "owner": like["uid"], "group": like["gid"], "user": "root"})


async def _chunks(file: IO[bytes]) -> AsyncIterator[bytes]:
    while chunk := await asyncio.to_thread(file.read, limits.UPLOAD_CHUNK_BYTES):
        yield chunk
