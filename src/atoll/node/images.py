"""Images: a sandbox at one moment, as a disk and, where there is one, the memory that belongs to it.

    <pool>/snapshots/<id>        the disk, a read-only subvolume
    <data>/images/<id>/          the memory's files, and manifest.json, written last

A memory image restores without a word of complaint when a byte of it was flipped, and a disk that changed since goes
unnoticed. So the manifest has a hash of each file, and the disk is made read-only in the same pause. It also says what
must be the same again for a restore: the guest's command line and mounts, the version of the runtime and the features
of the processor. A folder without a manifest is what a killed server left, and is removed at the next start.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

from atoll.model import limits
from atoll.model.errors import Conflict, NotFound
from atoll.node.disks import btrfs
from atoll.node.disks.pool import Pool
from atoll.node.names import HostNames

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Boot:
    """What the guest was started with; a restore must find the same."""

    token_hash: str
    guest_app: str
    runtime_dir: str


@dataclass(frozen=True, slots=True)
class Image:
    """One image that is whole, as its manifest describes it."""

    id: str
    boot: Boot
    token: str
    """The guest's token when the image was made; the first thing that a restored guest is told is another one."""
    runtime_version: str
    cpu_features: str
    files: dict[str, str]
    """The memory's files and the SHA-256 of each; empty for an image of a disk alone."""
    format: int = FORMAT

    @property
    def has_memory(self) -> bool:
        return bool(self.files)

    def __repr__(self) -> str:
        return f"Image({self.id})"  # no token in a log


class Images:
    """The images of one server."""

    def __init__(self, names: HostNames, pool: Pool) -> None:
        self._folder = names.data / "images"
        self._disks = pool.root / "snapshots"
        self._verified: set[str] = set()
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def disk_path(self, image_id: str) -> Path:
        return self._disks / image_id

    def memory_path(self, image_id: str) -> Path:
        return self._folder / image_id

    def begin(self, image_id: str) -> Path:
        """An empty folder for the memory of a new image."""
        folder = self.memory_path(image_id)
        folder.mkdir(mode=0o700)
        return folder

    def disk_take(self, image_id: str, source: Path) -> None:
        """The disk of a new image: what `source` is at this moment."""
        btrfs.snapshot_create(source, self.disk_path(image_id), read_only=True)

    def finish(self, image: Image) -> None:
        """The manifest: from here on the image exists, also after a crash of the host."""
        folder = self.memory_path(image.id)
        for name in image.files:
            _sync(folder / name)
        fresh = folder / "manifest.tmp"
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(fd, "w") as file:
            json.dump(asdict(image), file)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(folder / "manifest.json")
        _sync(folder)

    def find(self, image_id: str) -> Image:
        """What the manifest says; NotFound if there is no such image, Conflict if it cannot be read."""
        path = self.memory_path(image_id) / "manifest.json"
        try:
            raw = json.loads(path.read_text())
            boot = Boot(**raw.pop("boot"))
            image = Image(boot=boot, **raw)
        except FileNotFoundError:
            raise NotFound("there is no such image", code="image_not_found") from None
        except (ValueError, TypeError, KeyError) as error:
            raise Conflict("the image's manifest is damaged", code="image_damaged", detail=repr(error)) from None
        if image.format != FORMAT or not self.disk_path(image_id).is_dir():
            raise Conflict("the image is of another version, or its disk is gone", code="image_damaged")
        return image

    def verify(self, image: Image) -> None:
        """Every file is there and is what was written; looked at once in the life of a server."""
        if image.id in self._verified:
            return
        folder = self.memory_path(image.id)
        for name, digest in image.files.items():
            if Path(name).name != name or not (folder / name).is_file() or file_hash(folder / name) != digest:
                raise Conflict(
                    "the image was changed or cut short since it was made",
                    code="image_damaged",
                    hint="It cannot be used any more; go back to another snapshot.",
                    detail=f"{image.id}: {name}",
                )
        self._verified.add(image.id)

    def remove(self, image_id: str) -> None:
        """Idempotent. The manifest goes first: what is left without it is nobody's."""
        folder = self.memory_path(image_id)
        self._verified.discard(image_id)
        (folder / "manifest.json").unlink(missing_ok=True)
        if btrfs.is_subvolume(self.disk_path(image_id)):
            btrfs.subvolume_delete(self.disk_path(image_id))
        shutil.rmtree(folder, ignore_errors=True)

    def known(self) -> list[str]:
        return sorted(path.parent.name for path in self._folder.glob("*/manifest.json"))

    def sweep(self) -> None:
        """Remove what has no manifest: half an image, or a disk that was taken for one."""
        known = set(self.known())
        for folder in (self._folder, self._disks):
            for entry in folder.iterdir():
                if entry.name not in known:
                    self.remove(entry.name)


def file_hashes(folder: Path) -> dict[str, str]:
    return {path.name: file_hash(path) for path in sorted(folder.iterdir()) if path.is_file()}


def file_hash(path: Path) -> str:
    with open(path, "rb", buffering=0) as file:
        digest = hashlib.sha256()
        buffer = bytearray(limits.MIB)
        while count := file.readinto(buffer):
            digest.update(memoryview(buffer)[:count])
    return digest.hexdigest()


def cpu_features() -> str:
    """A short name for what this processor can do: an image must not wake up on one that can do less."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return hashlib.sha256(" ".join(sorted(rest.split())).encode()).hexdigest()[:16]
    return "unknown"


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
