"""Images: a sandbox at one moment, as a disk and, where there is one, the memory that belongs to it.

    <pool>/snapshots/<id>        the disk, a read-only subvolume
    <data>/images/<id>/          the memory's files, and manifest.json, written last

A memory image restores without a word of complaint when a byte of it was flipped, and a disk that changed since goes
unnoticed. So the manifest has a hash of each file, and the disk is made read-only in the same pause; the manifest of a
snapshot says which subvolume that is and when it last changed. It also says what must be the same again for a restore:
the guest's command line and mounts, the version of the runtime and the features of the processor. A folder without a
manifest is what a killed server left, and is removed at the next start.

A paused sandbox is an image that names it. Its disk is the sandbox's own, not a copy, because the kernel charges what
was written to the subvolume that wrote it: on a copy the sandbox's quota would begin anew with every pause. Where the
two change places, the other one stands by under the name `<id>+`, so that there is a disk at every moment.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import structlog

from atoll.model import ids, limits
from atoll.model.errors import AtollError, Conflict, NotFound, Unavailable
from atoll.node.disks import btrfs
from atoll.node.disks.pool import Pool, meaning, pool_full
from atoll.node.imagekey import ImageKey
from atoll.node.names import HostNames
from atoll.node.outflow import memory_open

FORMAT = 2
_STAND_BY = "+"
_SLEEPER = "sandbox"  # a file with the id of who sleeps here, should the manifest be damaged

log = structlog.get_logger("atoll.node")


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
    """The memory's files and what each is known by, a SHA-256 or a digest of this server's own (`imagekey`); empty for
    an image of a disk alone.
    """
    sandbox_id: str = ""
    """The paused sandbox that wakes up from this image; empty if it is anybody's."""
    env: Mapping[str, str] = field(default_factory=dict)
    memory_bytes: int = 0
    disk_bytes: int = 0
    """What the sandbox had written to its disk."""
    disk: str = field(default="", compare=False)
    """Which subvolume its disk is, as of which change. Empty for a paused sandbox, whose disk changes places with its
    copy, and where an earlier version wrote the manifest.
    """
    format: int = FORMAT

    @property
    def has_memory(self) -> bool:
        return bool(self.files)

    def __repr__(self) -> str:
        return f"Image({self.id})"  # no token in a log


Marks = dict[str, tuple[int, int, int, int]]  # of each file what changes when somebody changes the file


class Images:
    """The images of one server."""

    def __init__(self, names: HostNames, pool: Pool) -> None:
        self._folder = names.data / "images"
        self.key = ImageKey(names.data / "images.key")
        self._disks = pool.root / "snapshots"
        self._looking: dict[str, threading.Lock] = {}
        self._seals: dict[str, Marks] = {}
        self._changing_places: dict[str, threading.RLock] = {}
        self._removals = 0
        self._kept: dict[str, int] = {}
        """The memory that the largest file of an image is in, where that is not on the disk."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def disk_path(self, image_id: str) -> Path:
        return self._disks / image_id

    def memory_path(self, image_id: str) -> Path:
        return self._folder / image_id

    def begin(self, image_id: str) -> Path:
        """An empty folder for the memory of a new image; refused at once where there is next to no room."""
        if self.is_full():
            raise pool_full("less is free than is kept for the server's own records")
        folder = self.memory_path(image_id)
        folder.mkdir(mode=0o700)
        return folder

    def keep(self, image_id: str, name: str) -> int:
        """Memory for a file of a new image that never reaches the disk, for as long as the image exists."""
        fd = self._kept[image_id] = memory_open()
        (self.memory_path(image_id) / name).symlink_to(f"/proc/self/fd/{fd}")
        return fd

    def is_full(self) -> bool:
        """Whether so little is free that an image cannot be finished."""
        free = min(shutil.disk_usage(folder).free for folder in (self._folder, self._disks))
        return free < limits.IMAGE_RESERVE_BYTES

    def disk_take(self, image_id: str, source: Path) -> None:
        """The disk of a new image: what `source` is at this moment."""
        btrfs.snapshot_create(source, self.disk_path(image_id), read_only=True)

    def disk_keep(self, image_id: str, disk: Path) -> None:
        """Put a sandbox's own disk in the place of the copy that was taken of it; it has not changed since.

        Without its cap, which it gets again when somebody may write to it: of one that is full the kernel could not
        even note down that it is read-only from now on.
        """
        own, other = self.disk_path(image_id), self._stand_by(image_id)
        with self._placing(image_id):
            btrfs.quota_limit(disk, 0)
            own.rename(other)
            disk.rename(own)
            btrfs.read_only_set(own, True)
            btrfs.subvolume_delete(other)

    def disk_lend(self, image_id: str, target: Path) -> None:
        """Move the disk of a paused sandbox to where it is used; a copy stays, in case that comes to nothing.

        It has no cap then: see `disk_keep`.
        """
        own, other = self.disk_path(image_id), self._stand_by(image_id)
        with self._placing(image_id):
            btrfs.quota_limit(own, 0)  # that of an earlier version has one
            btrfs.snapshot_create(own, other, read_only=True)
            btrfs.read_only_set(own, False)  # a read-only subvolume cannot be moved to another folder
            own.rename(target)
            other.rename(own)

    @contextlib.contextmanager
    def _placing(self, image_id: str) -> Iterator[None]:
        """While two disks change places. What comes to nothing is put right, or by the next who looks for the image."""
        with self._turn(image_id):
            self.settle(image_id)
            try:
                yield
            except BaseException:
                with contextlib.suppress(OSError):
                    self.settle(image_id)
                raise

    def copy(self, image: Image, image_id: str) -> Image:
        """The same moment under another id, and nobody's."""
        self.share(image, image_id)
        made = replace(image, id=image_id, sandbox_id="")
        try:
            self.finish(made)
        except BaseException:
            self.remove(image_id)
            raise
        return made

    def share(self, image: Image, image_id: str) -> None:
        """What an image is made of under another id, without a manifest: it exists as long as somebody holds on to it.

        The memory's files never change, so they are shared.
        """
        folder = self.begin(image_id)
        sealed = self._is_sealed(image)
        try:
            for name in image.files:
                os.link(self.memory_path(image.id) / name, folder / name)
            if sealed and image.files:
                self.seal(image)  # that there is another link is no change to what was written
            self.disk_take(image_id, self.disk_path(image.id))
        except BaseException:
            self.remove(image_id)
            raise

    def settle(self, image_id: str) -> None:
        """Where two disks were about to change places, see to it that one of them is in the place."""
        own, other = self.disk_path(image_id), self._stand_by(image_id)
        with self._turn(image_id):
            if other.exists() and own.exists():
                btrfs.subvolume_delete(other)
            elif other.exists():
                other.rename(own)

    def is_unsettled(self, image_id: str) -> bool:
        """Whether two disks are, or were, about to change places."""
        return self._stand_by(image_id).exists()

    def _turn(self, image_id: str) -> threading.RLock:
        """One at a time moves the disks of an image; for those of another nobody waits, for it may take long."""
        return self._changing_places.setdefault(image_id, threading.RLock())

    def settle_all(self) -> None:
        """At a start, when nobody is at work on any of them."""
        for other in self._disks.glob(f"*{_STAND_BY}"):
            self.settle(other.name.removesuffix(_STAND_BY))

    def forget(self, image_id: str) -> None:
        """From here on the image does not exist; what is left of it goes with `remove`."""
        (self.memory_path(image_id) / "manifest.json").unlink(missing_ok=True)
        self._looking.pop(image_id, None)
        self._changing_places.pop(image_id, None)
        self._seals.pop(image_id, None)

    def _stand_by(self, image_id: str) -> Path:
        return self._disks / (image_id + _STAND_BY)

    def finish(self, image: Image, *, passing: bool = False) -> None:
        """The manifest: from here on the image exists, also after a crash of the host.

        One that is only passing is thrown away at the next start in any case. So it need not reach the disk.
        """
        folder = self.memory_path(image.id)
        if image.sandbox_id:
            (folder / _SLEEPER).write_text(image.sandbox_id)
        else:
            image = replace(image, disk=btrfs.content_mark(self.disk_path(image.id)))
        if passing:
            self.warm(image.id)
            (folder / "manifest.json").write_text(json.dumps(asdict(image)))
            return
        # All at once: the disk then has one log to write, and not one for each of them.
        names = [*image.files, *([_SLEEPER] if image.sandbox_id else [])]
        with ThreadPoolExecutor(max(1, len(names))) as threads:
            list(threads.map(_sync, [folder / name for name in names]))
        fresh = folder / "manifest.tmp"
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(fd, "w") as file:
            json.dump(asdict(image), file)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(folder / "manifest.json")
        _sync(folder)

    def warm(self, image_id: str) -> None:
        """Have the memory's files read ahead, for one that is needed soon: they were written past the page cache."""
        for path in self.memory_path(image_id).iterdir():
            with contextlib.suppress(FileNotFoundError), open(path, "rb", buffering=0) as file:
                # The kernel takes a window of some MiB out of each advice, and no more.
                most = min(os.fstat(file.fileno()).st_size, limits.OUTFLOW_MEMORY_BYTES_MAX)
                for start in range(0, most, limits.OUTFLOW_PIECE_BYTES):
                    os.posix_fadvise(file.fileno(), start, limits.OUTFLOW_PIECE_BYTES, os.POSIX_FADV_WILLNEED)

    def find(self, image_id: str) -> Image:
        """What the manifest says; NotFound if there is no such image, Conflict if it cannot be used.

        It waits for nobody, unless the image's own disk is changing places at this moment.
        """
        image = self.described(image_id)
        if image.format != FORMAT or not self._has_disk(image_id):
            raise Conflict("the image is of another version, or its disk is gone", code="image_damaged")
        if image.disk and image.disk != self._disk_mark(image_id):
            raise Conflict(
                "the image's disk was changed or replaced since it was made",
                code="image_damaged",
                hint="It cannot be used any more; go back to another snapshot.",
                detail=image_id,
            )
        return image

    def described(self, image_id: str) -> Image:
        """What the manifest says, whatever became of the disk; it waits for nobody at all."""
        try:
            return _read(self.memory_path(image_id) / "manifest.json")
        except FileNotFoundError:
            raise NotFound("there is no such image", code="image_not_found") from None
        except (IsADirectoryError, NotADirectoryError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise Conflict("the image's manifest is damaged", code="image_damaged", detail=repr(error)) from None
        except OSError as error:  # out of descriptors, say: that says nothing of the image
            raise Unavailable("the image cannot be read now", code="disk_failed", detail=repr(error)) from None

    def _has_disk(self, image_id: str) -> bool:
        disk = self.disk_path(image_id)
        if not disk.is_dir():
            with contextlib.suppress(OSError):
                self.settle(image_id)
        return disk.is_dir()

    def _disk_mark(self, image_id: str) -> str:
        try:
            return btrfs.content_mark(self.disk_path(image_id))
        except (FileNotFoundError, NotADirectoryError):
            return "none"
        except OSError as error:
            raise Unavailable("the image cannot be read now", code="disk_failed", detail=repr(error)) from None

    def sleeper(self, image_id: str) -> str:
        """Which sandbox sleeps in an image, as far as anything of it still says so, else nothing.

        OSError where that cannot be seen now, which is no reason to take the sandbox for lost.
        """
        folder = self.memory_path(image_id)
        with contextlib.suppress(FileNotFoundError, IsADirectoryError, ValueError, TypeError, KeyError, AttributeError):
            return _read(folder / "manifest.json").sandbox_id
        with contextlib.suppress(FileNotFoundError, ValueError):
            name = (folder / _SLEEPER).read_text()
            return name if ids.is_id(ids.SANDBOX, name) else ""
        return ""

    def nameless(self) -> list[str]:
        """Images of paused sandboxes that do not say any more whose they are: nobody can wake up in them."""
        return [one for one in self.known() if ids.is_id(ids.PAUSE, one) and not self.sleeper(one)]

    def verify(self, image: Image) -> None:
        """Every file is there and is what was written. It is read once in the life of a server, whoever asks, and again
        whenever somebody has touched it.
        """
        if not image.files:
            return
        with self._looking.setdefault(image.id, threading.Lock()):
            if not self._is_sealed(image):
                before: Marks = {}
                with contextlib.suppress(FileNotFoundError):  # the look says which is missing
                    before = self._marks(image)
                self._look(image)
                self._seals[image.id] = before  # and not of now: it may have been touched behind the look

    def verify_but(self, image: Image, bulk: str) -> None:
        """The same of all files but one."""
        if not self._is_sealed(image):
            self._look(image, but=bulk)

    def seal(self, image: Image) -> None:
        """Its files were hashed by this server as it wrote them: while nobody touches them they are not read again."""
        self._seals[image.id] = self._marks(image)

    def _is_sealed(self, image: Image) -> bool:
        try:
            return self._seals.get(image.id) == self._marks(image)
        except OSError:
            return False

    def _marks(self, image: Image) -> Marks:
        found = {name: os.lstat(self.memory_path(image.id) / name) for name in image.files}
        return {name: (one.st_ino, one.st_size, one.st_mtime_ns, one.st_ctime_ns) for name, one in found.items()}

    def _look(self, image: Image, but: str = "") -> None:
        folder = self.memory_path(image.id)
        for name, digest in image.files.items():
            if name == but:
                continue
            path = folder / name
            if Path(name).name != name or not path.is_file() or not self.key.matches(path, digest):
                raise Conflict(
                    "the image was changed or cut short since it was made",
                    code="image_damaged",
                    hint="It cannot be used any more; go back to another snapshot.",
                    detail=f"{image.id}: {name}",
                )

    def remove(self, image_id: str) -> None:
        """Idempotent, also where two do it at once. The manifest goes first: what is left without it is nobody's."""
        folder = self.memory_path(image_id)
        with meaning("the image"):
            self.forget(image_id)
            try:
                for disk in (self.disk_path(image_id), self._stand_by(image_id)):
                    with contextlib.suppress(FileNotFoundError):
                        if btrfs.is_subvolume(disk):
                            btrfs.subvolume_delete(disk)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                if (kept := self._kept.pop(image_id, None)) is not None:
                    os.close(kept)
        self._removals += 1
        if self._removals % limits.QUOTA_SWEEP_EVERY == 0:
            self._quota_sweep()

    def _quota_sweep(self) -> None:
        with contextlib.suppress(OSError):
            btrfs.quota_sweep(self._disks)

    def known(self) -> list[str]:
        return sorted(path.parent.name for path in self._folder.glob("*/manifest.json"))

    def sweep(self) -> None:
        """Remove what has no manifest: half an image, or a disk that was taken for one."""
        self.settle_all()
        known = set(self.known())
        for folder in (self._folder, self._disks):
            for entry in folder.iterdir():
                if entry.name not in known:
                    self._remove_rest(entry.name)
        self._quota_sweep()

    def _remove_rest(self, image_id: str) -> None:
        """One that does not go keeps no server from starting; the next start tries again."""
        try:
            self.remove(image_id)
        except AtollError as error:
            log.warning("what is left of an image does not go", image=image_id, error=repr(error), detail=error.detail)


def restore_refusal(image: Image, runtime_version: str, features: str) -> Conflict | None:
    """Why an image cannot be brought to life here, or None; pure. A disk alone boots anywhere."""
    if not image.has_memory:
        return None
    if image.runtime_version != runtime_version:
        return Conflict(
            f"the snapshot's memory is of runtime {image.runtime_version}, and this is {runtime_version}",
            code="image_mismatch",
            hint="Its disk can still be used, with memory=false (--disk-only on the command line).",
        )
    if image.cpu_features != features:
        return Conflict(
            "the snapshot's memory was made on a processor with other features",
            code="image_mismatch",
            hint="Its disk can still be used, with memory=false (--disk-only on the command line).",
        )
    return None


def cpu_features() -> str:
    """A short name for what this processor can do: an image must not wake up on one that can do less."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return hashlib.sha256(" ".join(sorted(rest.split())).encode()).hexdigest()[:16]
    return "unknown"


def _read(manifest: Path) -> Image:
    raw = json.loads(manifest.read_text())
    image = Image(boot=Boot(**raw.pop("boot")), **raw)
    if not isinstance(image.files, dict) or not isinstance(image.sandbox_id, str):
        raise TypeError("not a manifest")
    return image


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
