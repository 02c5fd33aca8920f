"""Names of all that one server owns on its host: pure, and derived from the data directory alone.

Whatever a server makes outside its data directory carries its tag. So two servers on one host cannot take each other's
things, and a server that starts finds by name what an earlier life of it left behind, even if its journal is gone.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

NETNS_FOLDER = Path("/run/netns")


@dataclass(frozen=True, slots=True)
class HostNames:
    """The names of one server."""

    data: Path
    tag: str

    @classmethod
    def of(cls, data: Path) -> HostNames:
        real = data.resolve()
        return cls(real, hashlib.sha256(str(real).encode()).hexdigest()[:8])

    @property
    def run(self) -> Path:
        """What matters only while this boot of the host lasts: bundles, runsc's state, logs of sandboxes."""
        return self.data / "run"

    @property
    def runsc_root(self) -> Path:
        return self.run / "runsc"

    @property
    def journal(self) -> Path:
        return self.data / "journal"

    def box_folder(self, box_id: str) -> Path:
        return self.run / "boxes" / box_id

    @property
    def cgroup_parent(self) -> str:
        return f"atoll-{self.tag}"

    def cgroup(self, box_id: str) -> str:
        return f"{self.cgroup_parent}/{box_id}"

    @property
    def netns_prefix(self) -> str:
        return f"atoll-{self.tag}-"

    def netns_inner(self, slot: str) -> str:
        return f"{self.netns_prefix}{slot}-in"

    def netns_outer(self, slot: str) -> str:
        return f"{self.netns_prefix}{slot}-out"

    def netns_slot(self, netns: str) -> str | None:
        """The slot that a namespace's name belongs to, if it is one of ours."""
        if not netns.startswith(self.netns_prefix):
            return None
        slot, dash, side = netns.removeprefix(self.netns_prefix).rpartition("-")
        return slot if dash and side in ("in", "out") else None
