"""Counters that outlive the process that counts."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from atoll.node.egress.traffic import Traffic


def test_a_kill_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "traffic" / "sb1"
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        traffic = Traffic(path)
        for _ in range(1000):
            traffic.add(up=3, down=5)
        os.write(writer, b"x")
        signal.pause()
    assert os.read(reader, 1) == b"x"
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(reader)
    os.close(writer)
    again = Traffic(path)
    assert (again.bytes_up, again.bytes_down, again.total) == (3000, 5000, 8000)
    again.add(up=1, down=0)
    assert Traffic(path).bytes_up == 3001


def test_a_file_that_was_cut_off_begins_anew(tmp_path: Path) -> None:
    (tmp_path / "sb1").write_bytes(b"123")
    assert Traffic(tmp_path / "sb1").total == 0
    Traffic(tmp_path / "sb1").add(up=1, down=1)
    assert (tmp_path / "sb1").stat().st_size == 16


def test_without_room_it_counts_on(tmp_path: Path) -> None:
    """/dev/full refuses every write for want of room."""
    (tmp_path / "sb1").symlink_to("/dev/full")
    traffic = Traffic(tmp_path / "sb1")
    traffic.add(up=1, down=2)
    traffic.add(up=1, down=2)
    assert (traffic.bytes_up, traffic.bytes_down) == (2, 4)
