"""What a removed tenant leaves: sandboxes, snapshots, volumes and secrets go, whatever happens on the way.

The record says which tenants were removed and what of theirs is there. So a server that was killed in the middle goes
on where it stopped, and what cannot go yet (a volume that a dying sandbox has) is tried again.
"""

from __future__ import annotations

from datetime import timedelta

import anyio
import structlog

from atoll.control.clock import Clock
from atoll.control.sandboxes import Sandboxes
from atoll.control.snapshots import Snapshots
from atoll.control.store import estates as rows
from atoll.control.store.engine import Store
from atoll.control.store.estates import Estate
from atoll.control.volumes import Volumes
from atoll.model import limits
from atoll.model.errors import AtollError

log = structlog.get_logger(__name__)


class Estates:
    """Clears up after tenants."""

    def __init__(
        self, store: Store, clock: Clock, sandboxes: Sandboxes, snapshots: Snapshots, volumes: Volumes
    ) -> None:
        self._store = store
        self._clock = clock
        self._sandboxes = sandboxes
        self._snapshots = snapshots
        self._volumes = volumes
        self._more = anyio.Event()

    def tenant_removed(self) -> None:
        """There is something to clear up."""
        self._more.set()

    async def step(self) -> None:
        """Clear up what there is, then wait for more; a while only, if something could not go yet."""
        self._more = anyio.Event()
        left = await self._store.read(rows.left)
        for estate in left:
            await self._clear(estate)
        later = self._clock.now() + timedelta(seconds=limits.ESTATE_LOOK_S) if left else None
        await self._clock.wait_until(later, self._more)

    async def _clear(self, estate: Estate) -> None:
        if estate.has_sandboxes:
            await self._sandboxes.end_all_of(estate.owner)
        for snapshot_id in estate.snapshot_ids:
            await self._snapshots.discard(snapshot_id)
        for volume_id in estate.volume_ids:
            try:
                await self._volumes.discard(volume_id)
            except AtollError as error:  # a sandbox has it still
                log.info("volume_of_removed_tenant_stays", volume_id=volume_id, error=error.message)
        await self._store.write(rows.forget_secrets, estate.owner)
