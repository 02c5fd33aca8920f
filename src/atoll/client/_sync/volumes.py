# Generated from src/atoll/client/_async/volumes.py by tools/unasync.py: change that file, not this one.
"""Volumes: disks that outlive sandboxes and can be mounted into several."""

from __future__ import annotations

import os

from atoll.client import _exchange as exchange
from atoll.client._sync.transport import Transport
from atoll.client._sync.volumefiles import VolumeFiles
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


class Volume:
    """Your volumes.

    Example:
        Volume.create("data", size="1GiB")
        sb = Sandbox.create(volumes={"/data": "data"})
    """

    @classmethod
    def create(
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
            Volume.create("data", size="1GiB")
        """
        body = VolumeCreate(name=name, size_bytes=exchange.parse_bytes(size), source=source, snapshot=snapshot)
        transport = Transport.acquire(discover(url, api_key, os.environ))
        try:
            return transport.call("POST", _PATH, VolumeView, body)
        finally:
            transport.release()

    @classmethod
    def list(cls, *, url: str | None = None, api_key: str | None = None) -> Volumes:
        """Your volumes, by name.

        Example:
            print([v.name for v in Volume.list()])
        """
        transport = Transport.acquire(discover(url, api_key, os.environ))
        try:
            return (transport.call("GET", _PATH, VolumeList)).items
        finally:
            transport.release()

    @classmethod
    def get(cls, id_or_name: str, *, url: str | None = None, api_key: str | None = None) -> VolumeView:
        """One volume, by its id or its name.

        Example:
            print((Volume.get("data")).used_bytes)
        """
        transport = Transport.acquire(discover(url, api_key, os.environ))
        try:
            return transport.call("GET", f"{_PATH}/{exchange.segment(id_or_name)}", VolumeView)
        finally:
            transport.release()

    @classmethod
    def delete(cls, id_or_name: str, *, url: str | None = None, api_key: str | None = None) -> None:
        """Delete a volume that no sandbox has, with its snapshots.

        Example:
            Volume.delete("data")
        """
        transport = Transport.acquire(discover(url, api_key, os.environ))
        try:
            transport.fetch("DELETE", f"{_PATH}/{exchange.segment(id_or_name)}")
        finally:
            transport.release()

    @classmethod
    def files(cls, id_or_name: str, *, url: str | None = None, api_key: str | None = None) -> VolumeFiles:
        """The files of a volume, without a sandbox.

        Example:
            Volume.files("data").write("/a.txt", "hello")
        """
        return VolumeFiles(discover(url, api_key, os.environ), f"{_PATH}/{exchange.segment(id_or_name)}")

    @classmethod
    def snapshot(
        cls, id_or_name: str, name: str | None = None, *, url: str | None = None, api_key: str | None = None
    ) -> VolumeSnapshotView:
        """Keep what a volume holds now; sandboxes that have it go on.

        Example:
            before = Volume.snapshot("data", "before")
        """
        path = f"{_PATH}/{exchange.segment(id_or_name)}/snapshots"
        transport = Transport.acquire(discover(url, api_key, os.environ))
        try:
            return transport.call("POST", path, VolumeSnapshotView, VolumeSnapshotCreate(name=name))
        finally:
            transport.release()

    @classmethod
    def snapshots(cls, id_or_name: str, *, url: str | None = None, api_key: str | None = None) -> Snapshots:
        """The snapshots of a volume, newest first.

        Example:
            print([s.name for s in Volume.snapshots("data")])
        """
        path = f"{_PATH}/{exchange.segment(id_or_name)}/snapshots"
        transport = Transport.acquire(discover(url, api_key, os.environ))
        try:
            return (transport.call("GET", path, VolumeSnapshotList)).items
        finally:
            transport.release()

    @classmethod
    def rollback(
        cls, id_or_name: str, snapshot: str, *, url: str | None = None, api_key: str | None = None
    ) -> VolumeSnapshotView:
        """Make a volume that no sandbox has what it was in a snapshot, by its id or name. What came since is lost.

        Example:
            Volume.rollback("data", "before")
        """
        path = f"{_PATH}/{exchange.segment(id_or_name)}/rollback"
        transport = Transport.acquire(discover(url, api_key, os.environ))
        try:
            return transport.call("POST", path, VolumeSnapshotView, VolumeRollback(snapshot=snapshot))
        finally:
            transport.release()

    @classmethod
    def delete_snapshot(
        cls, id_or_name: str, snapshot: str, *, url: str | None = None, api_key: str | None = None
    ) -> None:
        """Delete a snapshot of a volume; volumes that were cloned from it stay.

        Example:
            Volume.delete_snapshot("data", "before")
        """
        path = f"{_PATH}/{exchange.segment(id_or_name)}/snapshots/{exchange.segment(snapshot)}"
        transport = Transport.acquire(discover(url, api_key, os.environ))
        try:
            transport.fetch("DELETE", path)
        finally:
            transport.release()
