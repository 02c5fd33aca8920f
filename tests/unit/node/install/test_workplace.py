"""Unfinished work is swept away, and no build step outlives its set-up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from atoll.model.errors import Internal
from atoll.node.install import workplace

pytestmark = pytest.mark.real


def test_leftovers_go_and_folders_vanish(tmp_path: Path) -> None:
    (tmp_path / "work/old/deep").mkdir(parents=True)
    with workplace.turn(tmp_path, lambda _: None):
        assert not (tmp_path / "work/old").exists()
        with workplace.folder(tmp_path / "work", "x") as folder:
            (folder / "file").write_text("x")
        assert list((tmp_path / "work").iterdir()) == []


def test_a_link_is_replaced(tmp_path: Path) -> None:
    for target in ("a", "b"):
        workplace.link(tmp_path / target, tmp_path / "link")
    assert os.readlink(tmp_path / "link") == str(tmp_path / "b")


def test_the_last_lines_of_a_failed_step_are_told(tmp_path: Path) -> None:
    with pytest.raises(Internal, match="the reason"):
        workplace.run_logged(["sh", "-c", "echo the reason; exit 1"], log=tmp_path / "log")


def test_killing_set_up_kills_its_build_step(tmp_path: Path) -> None:
    mark = f"{tmp_path}/mark"
    code = f"from atoll.node.install import workplace; workplace.run_contained(['sh', '-c', 'sleep 77; : {mark}'])"
    setup = subprocess.Popen([sys.executable, "-c", code])
    _wait(lambda: _running(mark))
    setup.send_signal(signal.SIGKILL)
    setup.wait()
    _wait(lambda: not _running(mark))


def _running(mark: str) -> bool:
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0] == b"sh" and mark.encode() in words[2]:
            found.append(entry)
    return bool(found)


def _wait(condition: object) -> None:
    assert callable(condition)
    for _ in range(250):
        if condition():
            return
        time.sleep(0.02)
    pytest.fail("it did not come about within 5 s")
