"""Volumes: disks that outlive sandboxes and can be mounted into several."""

from __future__ import annotations

import os

from atoll.client import _exchange as exchange
from atoll.client._async.transport import AsyncTransport
from atoll.client._async.volumefiles import AsyncVolumeFiles
from atoll.client._config import discover
from atoll.wire.public import (
    VolumeCreate,
    VolumeList,
    VolumeRollback,
    VolumeSnapshotCreate,
    VolumeSnapshotList,
    VolumeSnapshotView,
    VolumeView,
)

_PATH = "/v1/volumes"
Volumes = list[VolumeView]
Snapshots = list[VolumeSnapshotView]


class AsyncVolume:
    """Your volumes.

    Example:
        await AsyncVolume.create("data", size="1GiB")
        sb = await AsyncSandbox.create(volumes={"/data": "data"})
    """

    @classmethod
    async def create(
        cls,
        name: str,
        *,
        size: int | str | None = None,
        source: str | None = None,
        snapshot: str | None = None,
        url: str | None = None,
        api_key: str | None = None,
    ) -> VolumeView:
        """Make a volume, empty, or a clone of `source` as it is or as it was in `snapshot`; it holds at most `size`.

        Example:
            await AsyncVolume.create("data", size="1GiB")
        """
        body = VolumeCreate(name=name, size_bytes=exchange.parse_bytes(size), source=source, snapshot=snapshot)
        transport = AsyncTransport.acquire(discover(url, api_key, os.environ))
        try:
            return await transport.call("POST", _PATH, VolumeView, body)
        finally:
            await transport.release()

    @classmethod
    async def list(cls, *, url: str | None = None, api_key: str | None = None) -> Volumes:
        """Your volumes, by name.

        Example:
            print([v.name for v in await AsyncVolume.list()])
        """
        transport = AsyncTransport.acquire(discover(url, api_key, os.environ))
        try:
            return (await transport.call("GET", _PATH, VolumeList)).items
        finally:
            await transport.release()

    @classmethod
    async def get(cls, id_or_name: str, *, url: str | None = None, api_key: str | None = None) -> VolumeView:
        """One volume, by its id or its name.

        Example:
            print((await AsyncVolume.get("data")).used_bytes)
        """
        transport = AsyncTransport.acquire(discover(url, api_key, os.environ))
        try:
            return await transport.call("GET", f"{_PATH}/{exchange.segment(id_or_name)}", VolumeView)
        finally:
            await transport.release()

    @classmethod
    async def delete(cls, id_or_name: str, *, url: str | None = None, api_key: str | None = None) -> None:
        """Delete a volume that no sandbox has, with its snapshots.

        Example:
            await AsyncVolume.delete("data")
        """
        transport = AsyncTransport.acquire(discover(url, api_key, os.environ))
        try:
            await transport.fetch("DELETE", f"{_PATH}/{exchange.segment(id_or_name)}")
        finally:
            await transport.release()

    @classmethod
    def files(cls, id_or_name: str, *, url: str | None = None, api_key: str | None = None) -> AsyncVolumeFiles:
        """The files of a volume, without a sandbox.

        Example:
            await AsyncVolume.files("data").write("/a.txt", "hello")
        """
        return AsyncVolumeFiles(discover(url, api_key, os.environ), f"{_PATH}/{exchange.segment(id_or_name)}")

    @classmethod
    async def snapshot(
        cls, id_or_name: str, name: str | None = None, *, url: str | None = None, api_key: str | None = None
    ) -> VolumeSnapshotView:
        """Keep what a volume holds now; sandboxes that have it go on.

        Example:
            before = await AsyncVolume.snapshot("data", "before")
        """
        path = f"{_PATH}/{exchange.segment(id_or_name)}/snapshots"
        transport = AsyncTransport.acquire(discover(url, api_key, os.environ))
        try:
            return await transport.call("POST", path, VolumeSnapshotView, VolumeSnapshotCreate(name=name))
        finally:
            await transport.release()

    @classmethod
    async def snapshots(cls, id_or_name: str, *, url: str | None = None, api_key: str | None = None) -> Snapshots:
        """The snapshots of a volume, newest first.

        Example:
            print([s.name for s in await AsyncVolume.snapshots("data")])
        """
        path = f"{_PATH}/{exchange.segment(id_or_name)}/snapshots"
        transport = AsyncTransport.acquire(discover(url, api_key, os.environ))
        try:
            return (await transport.call("GET", path, VolumeSnapshotList)).items
        finally:
            await transport.release()

    @classmethod
    async def rollback(
        cls, id_or_name: str, snapshot: str, *, url: str | None = None, api_key: str | None = None
    ) -> VolumeSnapshotView:
        """Make a volume that no sandbox has what it was in a snapshot, by its id or name. What came since is lost.

        Example:
            await AsyncVolume.rollback("data", "before")
        """
        path = f"{_PATH}/{exchange.segment(id_or_name)}/rollback"
        transport = AsyncTransport.acquire(discover(url, api_key, os.environ))
        try:
            return await transport.call("POST", path, VolumeSnapshotView, VolumeRollback(snapshot=snapshot))
        finally:
            await transport.release()

    @classmethod
    async def delete_snapshot(
        cls, id_or_name: str, snapshot: str, *, url: str | None = None, api_key: str | None = None
    ) -> None:
        """Delete a snapshot of a volume; volumes that were cloned from it stay.

        Example:
            await AsyncVolume.delete_snapshot("data", "before")
        """
        path = f"{_PATH}/{exchange.segment(id_or_name)}/snapshots/{exchange.segment(snapshot)}"
        transport = AsyncTransport.acquire(discover(url, api_key, os.environ))
        try:
            await transport.fetch("DELETE", path)
        finally:
            await transport.release()
