"""Which images may be brought to life where."""

from __future__ import annotations

import ctypes
import hashlib
import mmap
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from atoll.model import ids, limits
from atoll.model.errors import Conflict
from atoll.node.disks import btrfs
from atoll.node.disks.pool import Pool
from atoll.node.images import Boot, Image, Images, restore_refusal
from atoll.node.names import HostNames
from tests.waiting import wait_until

IMAGE = Image(
    id="sn",
    boot=Boot("hash", "/app", "/runtime"),
    token="t" * 8,
    runtime_version="v1",
    cpu_features="abc",
    files={"checkpoint.img": "0" * 64},
)


def test_another_runtime_or_processor_is_refused_with_the_reason() -> None:
    assert restore_refusal(IMAGE, "v1", "abc") is None
    for version, features, word in (("v2", "abc", "v1"), ("v1", "other", "processor")):
        refused = restore_refusal(IMAGE, version, features)
        assert refused is not None
        assert refused.code == "image_mismatch"
        assert word in refused.message


def test_a_disk_alone_boots_anywhere() -> None:
    assert restore_refusal(replace(IMAGE, files={}), "v9", "none") is None


def test_no_token_in_a_log() -> None:
    assert IMAGE.token not in repr(IMAGE)


@pytest.fixture
def written(tmp_path: Path) -> tuple[Images, Image, Path]:
    """An image with one file, as the server that wrote it left it."""
    images = Images(HostNames.of(tmp_path), Pool(tmp_path, None))
    file = images.memory_path(IMAGE.id) / "checkpoint.img"
    file.parent.mkdir()
    file.write_bytes(b"memory")
    image = replace(IMAGE, files={file.name: hashlib.sha256(b"memory").hexdigest()})
    images.seal(image)
    return images, image, file


def test_what_was_written_here_and_not_touched_is_not_read_again(
    written: tuple[Images, Image, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    images, image, _ = written

    def read(*_: object) -> bool:
        raise AssertionError("it was read")

    monkeypatch.setattr(images.key, "matches", read)
    images.verify_but(image, "")
    images.verify(image)


def touch(file: Path) -> None:
    """Change it so that it has its size and its time again: of the other time nobody but the kernel decides."""
    before = file.stat()
    file.write_bytes(b"MEMORY")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    while file.stat().st_ctime_ns == before.st_ctime_ns:  # the kernel's clock for files has a tick of milliseconds
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("sealed", [True, False])
def test_what_was_used_and_then_touched_is_looked_at_again(
    sealed: bool, written: tuple[Images, Image, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what was not touched is looked at once, whether or not this server wrote it."""
    images, image, file = written
    if not sealed:
        images.forget(image.id)
    looked: list[Path] = []
    real = images.key.matches

    def look(path: Path, told: str) -> bool:
        looked.append(path)
        return real(path, told)

    monkeypatch.setattr(images.key, "matches", look)
    images.verify(image)
    images.verify(image)
    assert looked == ([] if sealed else [file])
    touch(file)
    for _ in range(2):
        with pytest.raises(Conflict):
            images.verify(image)


def test_what_was_touched_since_is_looked_at(written: tuple[Images, Image, Path]) -> None:
    images, image, file = written
    touch(file)
    with pytest.raises(Conflict) as caught:
        images.verify(image)
    assert caught.value.code == "image_damaged"
    file.unlink()
    with pytest.raises(Conflict):
        images.verify_but(image, "")


def resident_bytes(path: Path) -> int:
    """How much of a file is in the kernel's cache."""
    libc = ctypes.CDLL(None, use_errno=True)
    with (
        open(path, "rb") as file,
        mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ | mmap.PROT_WRITE, flags=2) as mapped,
    ):
        pages = (ctypes.c_ubyte * (len(mapped) // mmap.PAGESIZE))()
        held = ctypes.c_char.from_buffer(mapped)
        assert libc.mincore(ctypes.byref(held), ctypes.c_size_t(len(mapped)), pages) == 0
        del held
    return sum(page & 1 for page in pages) * mmap.PAGESIZE


def test_all_of_an_image_that_is_needed_soon_is_read_ahead(written: tuple[Images, Image, Path]) -> None:
    """One advice would be worth a few MiB of it."""
    images, image, _ = written
    large = images.memory_path(image.id) / "large.img"
    with open(large, "wb") as file:
        file.write(os.urandom(24 * limits.MIB))
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    assert resident_bytes(large) < 24 * limits.MIB
    images.warm(image.id)
    wait_until(lambda: resident_bytes(large) == 24 * limits.MIB, 10, "all of it is there")


def test_what_is_kept_in_memory_is_gone_with_its_image(written: tuple[Images, Image, Path]) -> None:
    images, image, _ = written
    before = set(os.listdir("/proc/self/fd"))
    fd = images.keep(image.id, "kept.img")
    os.write(fd, b"memory")
    assert (images.memory_path(image.id) / "kept.img").read_bytes() == b"memory"
    images.remove(image.id)
    assert not images.memory_path(image.id).exists()
    assert set(os.listdir("/proc/self/fd")) == before


def test_a_look_at_an_image_waits_for_no_other_whose_disk_is_on_the_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is done on the event loop, for every create from a snapshot, and the kernel may take its time over a move."""
    images = Images(HostNames.of(tmp_path), Pool(tmp_path, None))
    sleeping = replace(IMAGE, files={}, sandbox_id=ids.mint(ids.SANDBOX, 0, bytes(16)))
    for image_id in ("moving", "still"):
        images.memory_path(image_id).mkdir()
        images.disk_path(image_id).mkdir(parents=True)
        images.finish(replace(sleeping, id=image_id))
    begun, going_on = threading.Event(), threading.Event()

    def quota_limit(*_: object) -> None:
        begun.set()
        assert going_on.wait(10)
        raise OSError

    monkeypatch.setattr(btrfs, "quota_limit", quota_limit)
    with ThreadPoolExecutor() as threads:
        moving = threads.submit(images.disk_keep, "moving", tmp_path / "box")
        try:
            assert begun.wait(10)
            assert threads.submit(images.find, "still").result(5).id == "still"
            assert threads.submit(images.described, "moving").result(5).id == "moving"
        finally:
            going_on.set()
        assert isinstance(moving.exception(10), OSError)
