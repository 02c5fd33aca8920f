"""Snapshots: list, find and delete them. They are taken of a sandbox, and used where a template is."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

from atoll.client import _exchange as exchange
from atoll.client._async.transport import AsyncTransport
from atoll.client._config import discover
from atoll.wire.public import SnapshotPage, SnapshotView

_PATH = "/v1/snapshots"


class AsyncSnapshot:
    """Your snapshots.

    Example:
        snap = await sb.snapshot("ready")
        again = await AsyncSandbox.create(snap)
    """

    @classmethod
    async def list(
        cls,
        *,
        sandbox: str | None = None,
        limit: int | None = None,
        url: str | None = None,
        api_key: str | None = None,
    ) -> AsyncIterator[SnapshotView]:
        """Your snapshots, newest first, of one sandbox or of all; at most `limit`.

        Example:
            async for snap in AsyncSnapshot.list():
                print(snap.id, snap.name)
        """
        transport = AsyncTransport.acquire(discover(url, api_key, os.environ))
        filters = [("sandbox", sandbox)] if sandbox is not None else []
        left, cursor = limit, None
        try:
            while left is None or left > 0:
                where = exchange.list_query(filters, left, cursor)
                page = await transport.call("GET", f"{_PATH}{where}", SnapshotPage)
                for view in page.items[:left]:
                    yield view
                left = None if left is None else left - len(page.items)
                cursor = page.next
                if cursor is None:
                    return
        finally:
            await transport.release()

    @classmethod
    async def get(cls, id_or_name: str, *, url: str | None = None, api_key: str | None = None) -> SnapshotView:
        """One snapshot, by its id or its name.

        Example:
            snap = await AsyncSnapshot.get("ready")
        """
        transport = AsyncTransport.acquire(discover(url, api_key, os.environ))
        try:
            return await transport.call("GET", f"{_PATH}/{exchange.segment(id_or_name)}", SnapshotView)
        finally:
            await transport.release()

    @classmethod
    async def delete(cls, snapshot: str | SnapshotView, *, url: str | None = None, api_key: str | None = None) -> None:
        """Delete a snapshot. Sandboxes that were made from it are not touched.

        Example:
            await AsyncSnapshot.delete("ready")
        """
        transport = AsyncTransport.acquire(discover(url, api_key, os.environ))
        try:
            await transport.fetch("DELETE", f"{_PATH}/{exchange.segment(exchange.snapshot_id(snapshot))}")
        finally:
            await transport.release()
