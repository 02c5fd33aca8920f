# Generated from src/atoll/client/_async/snapshots.py by tools/unasync.py: change that file, not this one.
"""Snapshots: list, find and delete them. They are taken of a sandbox, and used where a template is."""

from __future__ import annotations

import os
from collections.abc import Iterator

from atoll.client import _exchange as exchange
from atoll.client._sync.transport import Transport
from atoll.client._config import discover
from atoll.wire.public import SnapshotPage, SnapshotView

_PATH = "/v1/snapshots"


class Snapshot:
    """Your snapshots.

    Example:
        snap = sb.snapshot("ready")
        again = Sandbox.create(snap)
    """

    @classmethod
    def list(
        cls,
        *,
        sandbox: str | None = None,
        limit: int | None = None,
        url: str | None = None,
        api_key: str | None = None,
    ) -> Iterator[SnapshotView]:
        """Your snapshots, newest first, of one sandbox or of all; at most `limit`.

        Example:
            for snap in Snapshot.list():
                print(snap.id, snap.name)
        """
        transport = Transport.acquire(discover(url, api_key, os.environ))
        filters = [("sandbox", sandbox)] if sandbox is not None else []
        left, cursor = limit, None
        try:
            while left is None or left > 0:
                where = exchange.list_query(filters, left, cursor)
                page = transport.call("GET", f"{_PATH}{where}", SnapshotPage)
                for view in page.items[:left]:
                    yield view
                left = None if left is None else left - len(page.items)
                cursor = page.next
                if cursor is None:
                    return
        finally:
            transport.release()

    @classmethod
    def get(cls, id_or_name: str, *, url: str | None = None, api_key: str | None = None) -> SnapshotView:
        """One snapshot, by its id or its name.

        Example:
            snap = Snapshot.get("ready")
        """
        transport = Transport.acquire(discover(url, api_key, os.environ))
        try:
            return transport.call("GET", f"{_PATH}/{exchange.segment(id_or_name)}", SnapshotView)
        finally:
            transport.release()

    @classmethod
    def delete(cls, snapshot: str | SnapshotView, *, url: str | None = None, api_key: str | None = None) -> None:
        """Delete a snapshot. Sandboxes that were made from it are not touched.

        Example:
            Snapshot.delete("ready")
        """
        transport = Transport.acquire(discover(url, api_key, os.environ))
        try:
            transport.fetch("DELETE", f"{_PATH}/{exchange.segment(exchange.snapshot_id(snapshot))}")
        finally:
            transport.release()
