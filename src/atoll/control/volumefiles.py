"""Use cases of a volume's files: the owner's check, the bounds, and the node.

They work whether or not sandboxes have the volume mounted: whoever calls is like one more sandbox that has it. What is
written appears as a whole.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

from atoll.control.authz import Principal
from atoll.control.store import volumes as rows
from atoll.control.store.engine import Store
from atoll.model import limits
from atoll.model.errors import InvalidArgument, NotFound
from atoll.wire.node import NodePort
from atoll.wire.volumes import Ownership, VolumeFile, VolumeListing, VolumeReading

_ID_MAX = 2**32 - 2  # the last one means "leave it as it is" to the system
_MODE_MAX = 0o1777  # without set-user-id and set-group-id: a file from outside gives nobody more rights


class VolumeFiles:
    """The files of one volume, for one caller."""

    def __init__(self, node: NodePort, volume_id: str) -> None:
        self._node = node
        self._volume_id = volume_id

    @classmethod
    async def of(cls, store: Store, node: NodePort, principal: Principal, reference: str) -> VolumeFiles:
        """Of a volume by id or by name."""
        found = await store.read(rows.find, principal.owner, reference[:128])
        if found is None:
            raise NotFound(f"there is no volume {reference[:80]!r}", code="volume_not_found", hint="List them.")
        return cls(node, found.id)

    async def stat(self, path: str, *, follow: bool = False) -> VolumeFile:
        return await self._node.volume_file_stat(self._volume_id, path, follow=follow)

    async def list(self, path: str, depth: int = 1) -> VolumeListing:
        if not 1 <= depth <= limits.TREE_DEPTH_MAX:
            raise InvalidArgument(f"depth is not between 1 and {limits.TREE_DEPTH_MAX}", code="invalid_query")
        return await self._node.volume_file_list(self._volume_id, path, depth, limits.VOLUME_LIST_ENTRIES_MAX)

    def read(self, path: str, offset: int = 0, length: int | None = None) -> AbstractAsyncContextManager[VolumeReading]:
        if not 0 <= offset < 2**63 or (length is not None and not 0 <= length < 2**63):
            raise InvalidArgument("offset and length are not negative", code="invalid_query")
        return self._node.volume_file_read(self._volume_id, path, offset, length)

    async def write(
        self,
        path: str,
        chunks: AsyncIterator[bytes],
        ownership: Ownership,
        *,
        parents: bool = True,
        overwrite: bool = True,
    ) -> VolumeFile:
        return await self._node.volume_file_write(
            self._volume_id, path, chunks, checked(ownership), parents=parents, overwrite=overwrite
        )

    async def change(self, path: str, ownership: Ownership) -> VolumeFile:
        return await self._node.volume_file_change(self._volume_id, path, checked(ownership))

    async def make_directory(
        self, path: str, ownership: Ownership, *, parents: bool = True, exist_ok: bool = True
    ) -> VolumeFile:
        return await self._node.volume_directory_create(
            self._volume_id, path, checked(ownership), parents=parents, exist_ok=exist_ok
        )

    async def move(self, source: str, target: str, *, overwrite: bool = True, parents: bool = False) -> VolumeFile:
        return await self._node.volume_file_move(self._volume_id, source, target, overwrite=overwrite, parents=parents)

    async def remove(self, path: str, *, recursive: bool = False, missing_ok: bool = False) -> None:
        try:
            await self._node.volume_file_remove(self._volume_id, path, recursive=recursive)
        except NotFound as error:
            if not missing_ok or error.code != "not_found":
                raise


def checked(ownership: Ownership) -> Ownership:
    """Numbers that can be an owner, a group and rights; pure."""
    for name, value in (("uid", ownership.uid), ("gid", ownership.gid)):
        if value is not None and not 0 <= value <= _ID_MAX:
            raise InvalidArgument(f"{name} is not between 0 and {_ID_MAX}", code="invalid_argument")
    if ownership.mode is not None and not 0 <= ownership.mode <= _MODE_MAX:
        raise InvalidArgument(
            "mode is not between 0 and 1777 in octal digits",
            code="invalid_argument",
            hint="A file that is put into a volume cannot be set-user-id or set-group-id.",
        )
    return ownership
