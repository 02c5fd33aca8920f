"""One snapshot that arrives as a file: unpacked where nobody sees it, and an image only when all of it has been proven.

The image's folder and disk are there from the first byte on, but its manifest comes last (`images`): whatever dies in
between leaves a folder without one, which the next start removes.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass

from atoll.model import limits
from atoll.model.errors import Conflict, OutOfSpace
from atoll.node.disks import btrfs
from atoll.node.host import Host
from atoll.node.images import Boot, Image, cpu_features, restore_refusal
from atoll.node.snapshotfile import container, items
from atoll.node.snapshotfile.items import Head
from atoll.node.snapshotfile.signing import Signing
from atoll.node.snapshotfile.unpack import Unpacker


@dataclass(frozen=True, slots=True)
class Arrived:
    """An image that was a file, and what its manifest said beyond what an image knows."""

    image: Image
    head: Head


class Arrival:
    """Takes the bytes of a file as they come. Blocks; meant for a thread. Whoever makes one removes the image if it
    does not come to `finish`.
    """

    def __init__(self, host: Host, signing: Signing, image_id: str, *, memory: bool) -> None:
        self._host = host
        self._signing = signing
        self._image_id = image_id
        self._memory = memory
        self._outside = container.Reader()
        self._inside = items.Reader()
        self._unpacker: Unpacker | None = None
        self._folder = host.images.begin(image_id)
        self._disk = host.images.disk_path(image_id)
        self._check_room(0)
        btrfs.subvolume_create(self._disk)
        btrfs.quota_limit(self._disk, max(1, host.pool.free_bytes() - limits.POOL_RESERVE_BYTES))

    def feed(self, data: bytes) -> None:
        for block in self._outside.feed(data):
            self._check_room(0)
            for item in self._inside.feed(block):
                if isinstance(item, Head):
                    self._begin(item)
                else:
                    assert self._unpacker is not None
                    self._unpacker.take(item)

    def finish(self) -> Arrived:
        """All bytes have come. Everything is proven before the manifest makes an image of it."""
        seal = self._outside.finish()
        self._inside.finish()
        head, unpacker = self._inside.head, self._unpacker
        assert head is not None
        assert unpacker is not None
        if unpacker.memory_digests() != {one.name: one.sha256 for one in head.memory}:
            raise items.damaged("its memory is not the one that its head describes")
        if head.memory and self._memory:
            self._signing.check(seal)
        self.close()
        btrfs.sync(self._disk)  # all of it is on the disk before the manifest says so
        image = self._image(head, disk_bytes=btrfs.usage_bytes(self._disk))
        btrfs.quota_limit(self._disk, 0)
        btrfs.read_only_set(self._disk, True)
        self._host.images.finish(image)
        return Arrived(image, head)

    def close(self) -> None:
        if self._unpacker is not None:
            self._unpacker.close()

    def _begin(self, head: Head) -> None:
        """Refuse what cannot be used here before gigabytes of it have come."""
        if head.machine != self._host.machine:
            raise Conflict(
                f"the snapshot is of a {head.machine} machine, and this is {self._host.machine}", code="image_mismatch"
            )
        wanted = bool(head.memory) and self._memory
        if wanted:
            assert self._outside.signer is not None
            self._signing.check_known(self._outside.signer)
            self._check_fits(head)
            self._check_room(sum(one.size for one in head.memory))
        self._unpacker = Unpacker(self._disk, self._folder if wanted else None)

    def _check_fits(self, head: Head) -> None:
        refused = restore_refusal(self._image(head), self._host.runtime_version, cpu_features())
        if refused is None and not self._guest_known(head):
            refused = Conflict(
                "the snapshot's memory holds a guest of another version of Atoll",
                code="image_mismatch",
                hint="Its disk can still be used: import it with memory=false.",
            )
        if refused is not None:
            refused.hint = "Its disk can still be used: import it with memory=false."
            raise refused

    def _guest_known(self, head: Head) -> bool:
        same_interpreter = head.interpreter == self._host.runtime_dir.name
        return same_interpreter and (self._host.guest_app.parent / head.guest).is_dir()

    def _check_room(self, more_bytes: int) -> None:
        data_free = shutil.disk_usage(self._host.names.data).free
        if min(self._host.pool.free_bytes(), data_free - more_bytes) < limits.POOL_RESERVE_BYTES:
            raise OutOfSpace("there is no room for the snapshot", code="disk_pool_full")

    def _image(self, head: Head, disk_bytes: int = 0) -> Image:
        files = {one.name: one.sha256 for one in head.memory} if self._memory else {}
        app = self._host.guest_app.parent / head.guest
        return Image(
            id=self._image_id,
            boot=Boot(head.token_hash, str(app), str(self._host.runtime_dir)) if files else Boot("", "", ""),
            token=head.token if files else "",
            runtime_version=head.runtime_version,
            cpu_features=head.cpu_features,
            files=files,
            env=head.env,
            memory_bytes=sum(one.size for one in head.memory) if files else 0,
            disk_bytes=disk_bytes,
        )
