"""Volumes of a node without a machine: plain folders in a temporary place, with the real code for their files."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path

from atoll.model.errors import Conflict, NotFound
from atoll.model.volume import VolumeMount
from atoll.node.volumeport import VolumePort, VolumeRoom


class FakeVolumes(VolumePort):
    """The part of a node's port that is about volumes. A copy of a volume is a copy of its folder."""

    def __init__(self) -> None:
        super().__init__()
        self.volumes: set[str] = set()
        self._volume_room = VolumeRoom()
        self._volume_folder: Path | None = None

    async def volume_create(self, volume_id: str, quota_bytes: int, source: str = "") -> None:  # noqa: ARG002
        self._volume_copy(source, volume_id)

    async def volume_remove(self, volume_id: str) -> None:
        self.volumes.discard(volume_id)
        shutil.rmtree(self._volumes_at() / volume_id, ignore_errors=True)

    async def volume_used_bytes(self, volume_id: str) -> int:
        self._tree(volume_id)
        return 0

    def volume_ids(self) -> frozenset[str]:
        return frozenset(self.volumes)

    async def volume_snapshot_create(self, volume_id: str, snapshot_id: str) -> int:
        self._volume_copy(volume_id, snapshot_id)
        return 0

    async def volume_snapshot_remove(self, snapshot_id: str) -> None:
        await self.volume_remove(snapshot_id)

    async def volume_rollback(self, volume_id: str, snapshot_id: str, quota_bytes: int) -> None:  # noqa: ARG002
        self._tree(snapshot_id)
        shutil.rmtree(self._tree(volume_id))
        self._volume_copy(snapshot_id, volume_id)

    def _check_volumes(self, mounts: Sequence[VolumeMount]) -> None:
        if not self.volumes.issuperset(mount.volume for mount in mounts):
            raise Conflict("a volume of the sandbox is gone", code="volume_not_found")
        self._check_open(mounts)

    def _tree(self, volume_id: str) -> Path:
        if volume_id not in self.volumes:
            raise NotFound("there is no such volume here", code="volume_not_found")
        return self._volumes_at() / volume_id

    def _volume_copy(self, source: str, target: str) -> None:
        path = self._volumes_at() / target
        if source:
            shutil.copytree(self._tree(source), path, symlinks=True)
        else:
            path.mkdir()
        self.volumes.add(target)

    def _volumes_at(self) -> Path:
        """Made when it is first needed, and gone with the node."""
        if self._volume_folder is None:
            self._volume_folder = Path(tempfile.mkdtemp(prefix="atoll-volumes-"))
            weakref.finalize(self, shutil.rmtree, self._volume_folder, ignore_errors=True)
        return self._volume_folder
