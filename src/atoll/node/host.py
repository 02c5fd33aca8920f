"""What every sandbox of a node shares: the host's means, gathered once at start."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field
from pathlib import Path

from atoll.model import ids
from atoll.model.resources import Resources
from atoll.node.cgroups import Cgroups
from atoll.node.disks.pool import Pool
from atoll.node.egress.egress import Egress
from atoll.node.images import Boot, Images
from atoll.node.journal import Entry, Journal
from atoll.node.memorywatch import MemoryWatch
from atoll.node.names import HostNames
from atoll.node.rewarming import Rewarming
from atoll.node.runtime.base import Driver
from atoll.wire import guest


@dataclass(frozen=True, slots=True)
class Host:
    """The means by which one server makes sandboxes."""

    names: HostNames
    journal: Journal
    pool: Pool
    cgroups: Cgroups
    driver: Driver
    guest_app: Path
    runtime_dir: Path
    machine: str
    runtime_version: str
    images: Images
    egress: Egress = field(default_factory=Egress)
    memory_watch: MemoryWatch = field(default_factory=MemoryWatch)
    rewarming: Rewarming = field(default_factory=Rewarming)

    def entry(
        self,
        sandbox_id: str,
        template: str,
        resources: Resources,
        *,
        slot: str,
        hostname: str,
        boot: Boot | None = None,
    ) -> Entry:
        """A new box on paper, with a name, a token and, unless an image prescribes it, a boot of its own."""
        token = secrets.token_urlsafe(32)
        own = Boot(guest.token_hash(token), str(self.guest_app), str(self.runtime_dir))
        return Entry(
            box_id=ids.mint(ids.BOX, time.time_ns() // 1_000_000, secrets.token_bytes(16)),
            sandbox_id=sandbox_id,
            slot=slot,
            template=template,
            resources=resources,
            hostname=hostname,
            token=token,
            boot=boot or own,
        )
