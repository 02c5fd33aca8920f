"""Snapshots to and from other servers: an image out as the bytes of a file, and the bytes of a file in as an image."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
from anyio import to_thread

from atoll.model import ids
from atoll.model.resources import Resources
from atoll.node.disks.pool import meaning, wanting_room
from atoll.node.hashing import file_hash
from atoll.node.host import Host
from atoll.node.images import Image
from atoll.node.snapshotfile import pack
from atoll.node.snapshotfile.arrival import Arrival
from atoll.node.snapshotfile.container import Writer
from atoll.node.snapshotfile.items import Head, MemoryFile
from atoll.node.snapshotfile.signing import Signing
from atoll.node.snapshots import Snapshots
from atoll.wire.node import ImageArrived


class Transfers:
    """The exports and imports of one node. In both directions one block is in memory, whatever the snapshot's size."""

    def __init__(self, host: Host, snapshots: Snapshots, signing: Signing) -> None:
        self._host = host
        self._snapshots = snapshots
        self._signing = signing

    @asynccontextmanager
    async def export(
        self, image_id: str, template: str, resources: Resources, *, memory: bool
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The bytes of the file, as long as the context lasts. The image is checked first: damage does not travel.

        They are those of a copy, so that whoever deletes the image does not wait for a caller who reads slowly.
        """
        images = self._host.images
        image = images.find(image_id)
        if not memory:
            image = replace(image, files={}, token="")
        copy_id = ids.mint(ids.PAUSE, time.time_ns() // 1_000_000, secrets.token_bytes(16))
        with self._snapshots.using(image_id), meaning("the export"):
            await to_thread.run_sync(images.verify, image)
            head = await to_thread.run_sync(_head, self._host, image, template, resources)
            await to_thread.run_sync(images.share, image, copy_id)
        blocks = _blocks(head, images.disk_path(copy_id), images.memory_path(copy_id), self._signing)
        try:
            yield _each(blocks)
        finally:
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(blocks.close)
                await to_thread.run_sync(images.remove, copy_id)

    async def arrive(self, image_id: str, chunks: AsyncIterator[bytes], *, memory: bool) -> ImageArrived:
        """A new image out of the bytes of a file; on an error nothing of it is left."""
        try:
            with wanting_room():
                arrival = await to_thread.run_sync(lambda: Arrival(self._host, self._signing, image_id, memory=memory))
            try:
                async for chunk in chunks:
                    await to_thread.run_sync(arrival.feed, chunk)
                with wanting_room():
                    arrived = await to_thread.run_sync(arrival.finish)
            finally:
                with anyio.CancelScope(shield=True):
                    await to_thread.run_sync(arrival.close)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(self._host.images.remove, image_id)
            raise
        image, head = arrived.image, arrived.head
        return ImageArrived(head.template, head.resources, image.has_memory, image.memory_bytes, image.disk_bytes)


def _blocks(head: Head, disk: Path, memory: Path, signing: Signing) -> Generator[bytes, None, None]:
    """The bytes of a file, one block at a time; meant for threads, one after the other."""
    writer = Writer(signing.public)
    yield writer.begin()
    for encoded in pack.packed(head, disk, memory):
        if block := writer.add(encoded):
            yield block
    yield writer.end(signing.sign)


async def _each(blocks: Generator[bytes, None, None]) -> AsyncIterator[bytes]:
    while (block := await to_thread.run_sync(next, blocks, None)) is not None:
        yield block


def _head(host: Host, image: Image, template: str, resources: Resources) -> Head:
    """Its files are hashed for whoever reads it: what this server knows them by is its own affair."""
    folder = host.images.memory_path(image.id)
    return Head(
        template=template,
        cpu=resources.cpu,
        memory_bytes=resources.memory_bytes,
        disk_bytes=resources.disk_bytes,
        pids=resources.pids,
        machine=host.machine,
        runtime_version=image.runtime_version,
        cpu_features=image.cpu_features,
        guest=Path(image.boot.guest_app).name if image.files else "",
        interpreter=Path(image.boot.runtime_dir).name if image.files else "",
        token=image.token if image.files else "",
        token_hash=image.boot.token_hash if image.files else "",
        env=dict(image.env),
        memory=tuple(
            MemoryFile(name, (folder / name).stat().st_size, file_hash(folder / name)) for name in sorted(image.files)
        ),
    )
