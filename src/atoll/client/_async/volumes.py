"""Volumes: disks that outlive sandboxes and can be mounted into several."""

from __future__ import annotations

import os

from atoll.client import _exchange as exchange
from atoll.client._async.transport import AsyncTransport
from atoll.client._config import discover
from atoll.wire.public import VolumeCreate, VolumeList, VolumeView

_PATH = "/v1/volumes"
Volumes = list[VolumeView]


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
        url: str | None = None,
        api_key: str | None = None,
    ) -> VolumeView:
        """Make a volume, empty or a clone of `source`; it holds at most `size`.

        Example:
            await AsyncVolume.create("data", size="1GiB")
        """
        body = VolumeCreate(name=name, size_bytes=exchange.parse_bytes(size), source=source)
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
        """Delete a volume that no sandbox has.

        Example:
            await AsyncVolume.delete("data")
        """
        transport = AsyncTransport.acquire(discover(url, api_key, os.environ))
        try:
            await transport.fetch("DELETE", f"{_PATH}/{exchange.segment(id_or_name)}")
        finally:
            await transport.release()
