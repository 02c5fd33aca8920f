"""A memory image on its way to the disk."""

from __future__ import annotations

import errno
import hashlib
import os
import threading
from pathlib import Path

import pytest

from atoll.model import limits
from atoll.node.outflow import KEPT, Inflow, Kept, Outflow, memory_open

PIECE = limits.OUTFLOW_PIECE_BYTES


class Sha256:
    """A digest that a test can compare."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def update(self, data: memoryview) -> None:
        self._hash.update(data)

    def told(self) -> str:
        return self._hash.hexdigest()


def _flown(path: Path, data: bytes, step: int, *, patient: bool = False) -> str:
    """What comes out when a writer writes `data` in steps while it is taken away."""
    outflow = Outflow(path, Sha256(), patient=patient)
    hashes: list[str] = []
    taking = threading.Thread(target=lambda: hashes.append(outflow.run()))
    taking.start()
    try:
        for start in range(0, len(data), step):
            os.pwrite(outflow.fd, data[start : start + step], start)
    finally:
        outflow.finish()
        taking.join()
        outflow.close()
    return hashes[0]


@pytest.mark.parametrize(
    "size", [0, 1, 4096, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE, 5 * PIECE + 12_345], ids=lambda size: f"{size}B"
)
@pytest.mark.parametrize("patient", [False, True], ids=["at once", "patient"])
def test_what_a_writer_wrote_is_in_the_file_with_its_hash(tmp_path: Path, size: int, patient: bool) -> None:
    data = os.urandom(size)
    digest = _flown(tmp_path / "image", data, 100_000, patient=patient)
    assert (tmp_path / "image").read_bytes() == data
    assert digest == hashlib.sha256(data).hexdigest()
    assert (tmp_path / "image").stat().st_mode & 0o777 == 0o600


def test_a_filesystem_that_does_not_write_past_its_cache_gets_the_bytes_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.pwrite
    refused: list[int] = []

    def pwrite(fd: int, data: memoryview, start: int) -> int:
        if not refused:
            refused.append(fd)
            raise OSError(errno.EINVAL, "no direct writes here")
        return write(fd, data, start)

    monkeypatch.setattr("atoll.node.outflow.os.pwrite", pwrite)
    outflow = Outflow(tmp_path / "image", Sha256())
    data = os.urandom(PIECE + 5)
    write(outflow.fd, data, 0)
    outflow.finish()
    assert outflow.run() == hashlib.sha256(data).hexdigest()
    outflow.close()
    assert refused
    assert (tmp_path / "image").read_bytes() == data


def test_a_disk_without_room_is_an_error_and_not_a_short_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def pwrite(fd: int, data: memoryview, start: int) -> int:
        raise OSError(errno.ENOSPC, "no space left on device")

    outflow = Outflow(tmp_path / "image", Sha256())
    os.write(outflow.fd, b"x" * PIECE)
    outflow.finish()
    monkeypatch.setattr("atoll.node.outflow.os.pwrite", pwrite)
    with pytest.raises(OSError, match="no space"):
        outflow.run()
    outflow.close()


def test_what_is_kept_in_memory_cannot_be_changed_by_who_wrote_it() -> None:
    """A writer has the descriptor for ever; copies are made from what it wrote, not from what it thinks of later."""
    fd = memory_open()
    kept = Kept(fd)
    kept.make_room(4 * PIECE)
    assert os.fstat(fd).st_size == 0
    assert os.fstat(fd).st_blocks * 512 >= 4 * PIECE
    said: list[str] = []
    taking = threading.Thread(target=lambda: said.append(kept.run()))
    taking.start()
    data = os.urandom(PIECE + 5)
    os.pwrite(fd, data, 0)
    assert kept.wait_begun()
    kept.finish()
    taking.join()
    assert said == [KEPT]
    with pytest.raises(PermissionError):
        os.pwrite(fd, b"x", 0)
    with pytest.raises(PermissionError):
        os.ftruncate(fd, 1)
    with open(f"/proc/self/fd/{fd}", "rb") as copy:
        assert copy.read() == data
    assert os.fstat(fd).st_blocks * 512 < 2 * PIECE  # what was too much room is given back
    os.close(fd)


def test_who_waits_for_the_first_byte_of_a_writer_that_gave_up_hears_of_it() -> None:
    fd = memory_open()
    flow = Inflow(fd)
    flow.make_room(PIECE)
    flow.finish()
    assert not flow.wait_begun()
    os.close(fd)
