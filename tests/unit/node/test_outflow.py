"""A memory image on its way to the disk."""

from __future__ import annotations

import errno
import hashlib
import os
import threading
from pathlib import Path

import pytest

from atoll.model import limits
from atoll.node.outflow import Outflow

PIECE = limits.OUTFLOW_PIECE_BYTES


def _flown(path: Path, data: bytes, step: int) -> str:
    """What comes out when a writer writes `data` in steps while it is taken away."""
    outflow = Outflow(path)
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
def test_what_a_writer_wrote_is_in_the_file_with_its_hash(tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    digest = _flown(tmp_path / "image", data, 100_000)
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
    outflow = Outflow(tmp_path / "image")
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

    outflow = Outflow(tmp_path / "image")
    os.write(outflow.fd, b"x" * PIECE)
    outflow.finish()
    monkeypatch.setattr("atoll.node.outflow.os.pwrite", pwrite)
    with pytest.raises(OSError, match="no space"):
        outflow.run()
    outflow.close()
