"""What every sandbox of a node shares: the host's means, gathered once at start."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from atoll.node.cgroups import Cgroups
from atoll.node.disks.pool import Pool
from atoll.node.journal import Journal
from atoll.node.names import HostNames
from atoll.node.runtime.base import Driver


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
