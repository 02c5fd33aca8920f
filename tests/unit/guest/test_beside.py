"""Writing beside the arrival: the same bytes in the same order, and errors that are not lost."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from atoll.guest.beside import BesideWriter
from atoll.model import limits


def add(writer: BesideWriter, data: bytes) -> None:
    rest = memoryview(data)
    while len(rest):
        room = writer.room()
        count = min(len(room), len(rest))
        room[:count] = rest[:count]
        writer.filled(count)
        rest = rest[count:]


@pytest.mark.parametrize("step", [1000, limits.WRITE_BUFFER_BYTES, limits.WRITE_BUFFER_BYTES * 3 + 1])
def test_all_bytes_in_order(tmp_path: Path, step: int) -> None:
    data = os.urandom(limits.WRITE_BUFFER_BYTES * 6 + 77)
    with (tmp_path / "f").open("wb") as file, BesideWriter(file.fileno()) as writer:
        for start in range(0, len(data), step):
            add(writer, data[start : start + step])
    assert (tmp_path / "f").read_bytes() == data


@pytest.mark.parametrize("buffers", [1, 30])
def test_an_error_is_raised_in_the_caller(buffers: int) -> None:
    """At the next buffer, or at the end at the latest."""
    fd = os.open("/dev/full", os.O_WRONLY)

    def write() -> None:
        with BesideWriter(fd) as writer:
            for _ in range(buffers):
                add(writer, bytes(limits.WRITE_BUFFER_BYTES))

    try:
        with pytest.raises(OSError, match="No space left"):
            write()
    finally:
        os.close(fd)


def test_what_fails_in_the_caller_is_what_is_raised(tmp_path: Path) -> None:
    def write(fd: int) -> None:
        with BesideWriter(fd) as writer:
            add(writer, b"x")
            raise KeyError

    with (tmp_path / "f").open("wb") as file, pytest.raises(KeyError):
        write(file.fileno())
    assert (tmp_path / "f").read_bytes() == b""
