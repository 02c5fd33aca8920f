# Generated from src/atoll/client/_async/volumes.py by tools/unasync.py: change that file, not this one.
"""Volumes: disks that outlive sandboxes and can be mounted into several."""

from __future__ import annotations

import os

from atoll.client import _exchange as exchange
from atoll.client._sync.transport import Transport
from atoll.client._config import discover
from atoll.wire.public import VolumeCreate, VolumeList, VolumeView

_PATH = "/v1/volumes"
Volumes = list[VolumeView]


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
        url: str | None = None,
        api_key: str | None = None,
    ) -> VolumeView:
        """Make a volume, empty or a clone of `source`; it holds at most `size`.

        Example:
            Volume.create("data", size="1GiB")
        """
        body = VolumeCreate(name=name, size_bytes=exchange.parse_bytes(size), source=source)
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
        """Delete a volume that no sandbox has.

        Example:
            Volume.delete("data")
        """
        transport = Transport.acquire(discover(url, api_key, os.environ))
        try:
            transport.fetch("DELETE", f"{_PATH}/{exchange.segment(id_or_name)}")
        finally:
            transport.release()
