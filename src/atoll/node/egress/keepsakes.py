"""What the network of a sandbox keeps for its whole life: how much it has moved, and the authority that it trusts.

A life outlasts the boxes that a sandbox lives in and the server that made it: it sleeps, the server is killed, and both
come back. So this lies in a folder of its own, by sandbox, until the sandbox is gone. It appears when it is needed
first, because most sandboxes never need it.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from atoll.node.egress.ca import Authority
from atoll.node.egress.traffic import Traffic


class Keepsakes:
    """Those of all sandboxes of a node; without a folder they last as long as the process."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._traffic: dict[str, Traffic] = {}
        self._authorities: dict[str, Authority] = {}

    def traffic(self, sandbox_id: str) -> Traffic:
        found = self._traffic.get(sandbox_id)
        if found is None:
            path = self._folder / sandbox_id / "traffic" if self._folder else None
            found = self._traffic[sandbox_id] = Traffic(path)
        return found

    def bytes_up(self, sandbox_id: str) -> int:
        """What one has sent out; asked from other threads, so it changes nothing."""
        found = self._traffic.get(sandbox_id)
        return found.bytes_up if found is not None else 0

    def authority(self, sandbox_id: str) -> Authority:
        """Its key costs a millisecond. Programs that trust it go on doing so after they have slept."""
        found = self._authorities.get(sandbox_id)
        if found is None:
            path = self._folder / sandbox_id / "authority.pem" if self._folder else None
            found = self._authorities[sandbox_id] = Authority.open(path)
        return found

    def forget(self, sandbox_id: str) -> None:
        """The sandbox is gone for good."""
        self._authorities.pop(sandbox_id, None)
        traffic = self._traffic.pop(sandbox_id, None)
        if traffic is not None:
            traffic.close()
        if self._folder is not None and (self._folder / sandbox_id).exists():
            shutil.rmtree(self._folder / sandbox_id, ignore_errors=True)

    def sweep(self, living: frozenset[str]) -> None:
        """Remove what belongs to none of these."""
        if self._folder is not None and self._folder.exists():
            for folder in self._folder.iterdir():
                if folder.name not in living:
                    shutil.rmtree(folder, ignore_errors=True)
