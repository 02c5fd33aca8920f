"""Snapshots: list, find, compare, delete, export and import them. They are taken of a sandbox."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

from atoll.client import _exchange as exchange
from atoll.client._async.transport import AsyncTransport
from atoll.client._config import discover
from atoll.client._local import LocalTarget, open_source
from atoll.client._progress import Meter, Progress
from atoll.client._twins import async_chunks
from atoll.model import ids, limits
from atoll.wire.public import SnapshotDiff, SnapshotPage, SnapshotSpace, SnapshotView

_PATH = "/v1/snapshots"
_RAW = "application/octet-stream"


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
    async def space(
        cls, snapshot: str | SnapshotView, *, url: str | None = None, api_key: str | None = None
    ) -> SnapshotSpace:
        """What a snapshot takes on the disk now: what is its own is free again when it is deleted. Takes seconds.

        Example:
            print((await AsyncSnapshot.space("ready")).own_bytes)
        """
        transport = AsyncTransport.acquire(discover(url, api_key, os.environ))
        try:
            path = f"{_PATH}/{exchange.segment(exchange.snapshot_id(snapshot))}/space"
            return await transport.call("GET", path, SnapshotSpace, read_s=limits.CLIENT_STATE_S_MAX)
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

    @classmethod
    async def diff(
        cls,
        before: str | SnapshotView,
        after: str | SnapshotView,
        *,
        url: str | None = None,
        api_key: str | None = None,
    ) -> SnapshotDiff:
        """What changed on the disk from one snapshot to another: files added, changed and removed.

        `sandbox.diff(snap)` compares with what a sandbox is now.

        Example:
            for item in (await AsyncSnapshot.diff(monday, friday)).items:
                print(item.change, item.path)
        """
        transport = AsyncTransport.acquire(discover(url, api_key, os.environ))
        first, second = exchange.snapshot_id(before), exchange.snapshot_id(after)
        try:
            if not ids.is_id(ids.SNAPSHOT, second):  # a name could be that of a sandbox, too
                second = (await transport.call("GET", f"{_PATH}/{exchange.segment(second)}", SnapshotView)).id
            path = f"{_PATH}/{exchange.segment(first)}/diff{exchange.query(against=second)}"
            return await transport.call("GET", path, SnapshotDiff, read_s=limits.CLIENT_STATE_S_MAX)
        finally:
            await transport.release()

    @classmethod
    async def export(
        cls,
        snapshot: str | SnapshotView,
        local_path: str | os.PathLike[str],
        *,
        memory: bool = True,
        on_progress: Progress | None = None,
        url: str | None = None,
        api_key: str | None = None,
    ) -> int:
        """Write a snapshot to a file of this machine; says how many bytes it has. It appears when it is complete.

        The file holds all that the sandbox held, its environment and (unless `memory` is False) its memory too: keep
        it as you would keep a secret.

        Example:
            await AsyncSnapshot.export("ready", "ready.atoll")
        """
        transport = AsyncTransport.acquire(discover(url, api_key, os.environ))
        where = exchange.query(memory=None if memory else False)
        path = f"{_PATH}/{exchange.segment(exchange.snapshot_id(snapshot))}/export{where}"
        meter = Meter(None, on_progress)
        try:
            with LocalTarget(Path(local_path), None) as target:
                async with transport.stream("GET", path, accept=_RAW, read_s=limits.CLIENT_STATE_S_MAX) as response:
                    async for data in response.aiter_raw():
                        target.write(data)
                        meter.add(len(data))
            return target.size_bytes
        finally:
            await transport.release()

    @classmethod
    async def import_(
        cls,
        local_path: str | os.PathLike[str],
        *,
        name: str | None = None,
        memory: bool = True,
        expires_s: float | None = None,
        on_progress: Progress | None = None,
        url: str | None = None,
        api_key: str | None = None,
    ) -> SnapshotView:
        """Make a snapshot of a file that `export` wrote, on this server or on another one.

        A file with memory is taken only if this server trusts the one that wrote it; with `memory=False` its disk is.

        Example:
            snap = await AsyncSnapshot.import_("ready.atoll", name="ready")
        """
        transport = AsyncTransport.acquire(discover(url, api_key, os.environ))
        where = exchange.query(name=name, memory=None if memory else False, expires_s=expires_s)
        try:
            with open_source(Path(local_path)) as (file, size_bytes):
                async with transport.stream(
                    "POST",
                    f"{_PATH}{where}",
                    async_chunks(Meter(size_bytes, on_progress).reading(file)),
                    content_type=_RAW,
                    content_bytes=size_bytes,
                    read_s=limits.CLIENT_STATE_S_MAX,
                ) as response:
                    return exchange.decode(await response.aread(), SnapshotView)
        finally:
            await transport.release()
