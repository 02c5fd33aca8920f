"""Helper programs are bounded in time and output, and a daemon that they leave does not hold us."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from atoll.model import limits
from atoll.model.errors import DeadlineExceeded, Internal, Unavailable
from atoll.node import spawn


def test_output_and_input_arrive() -> None:
    finished = spawn.run(["sh", "-c", "cat; echo out; echo err >&2"], stdin=b"in-")
    assert finished.stdout == b"in-out\n"
    assert finished.stderr == "err"
    assert finished.text == "in-out"


def test_a_failure_carries_the_last_words() -> None:
    with pytest.raises(Internal) as caught:
        spawn.run(["sh", "-c", "echo first >&2; echo last words >&2; exit 3"])
    assert caught.value.code == "helper_failed"
    assert "(3): last words" in caught.value.message
    assert "first" in caught.value.detail


def test_a_failure_can_be_looked_at_instead() -> None:
    assert spawn.run(["sh", "-c", "kill -9 $$"], check=False).exit_code == -9


def test_a_missing_program_is_named() -> None:
    with pytest.raises(Unavailable) as caught:
        spawn.run(["atoll-no-such-program"])
    assert caught.value.code == "missing_program"
    assert "atoll-no-such-program" in caught.value.message


def test_a_program_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    with pytest.raises(DeadlineExceeded):
        spawn.run(["sh", "-c", f"sleep 60 & echo $! > {pid_file}; wait"], timeout_s=0.3)
    _wait_gone(int(pid_file.read_text()))


def test_a_daemon_that_keeps_the_descriptors_does_not_hold_us(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    started_s = time.monotonic()
    spawn.run(["sh", "-c", f"setsid sleep 30 & echo $! > {pid_file}"])
    assert time.monotonic() - started_s < 5
    os.kill(int(pid_file.read_text()), 9)


def test_output_stops_at_its_bound() -> None:
    finished = spawn.run(["sh", "-c", f"head -c {limits.HELPER_STDOUT_BYTES_MAX + 1000} /dev/zero"], check=False)
    assert len(finished.stdout) == limits.HELPER_STDOUT_BYTES_MAX
    assert finished.exit_code != 0


def test_no_descriptor_is_left() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        spawn.run(["true"])
        spawn.run(["false"], check=False)
    assert len(os.listdir("/proc/self/fd")) == before


def test_on_the_event_loop_many_at_once() -> None:
    async def many() -> list[spawn.Finished]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(spawn.run_async(["sh", "-c", f"sleep 0.2; echo {n}"])) for n in range(20)]
        return [task.result() for task in tasks]

    started_s = time.monotonic()
    assert [finished.text for finished in asyncio.run(many())] == [str(n) for n in range(20)]
    assert time.monotonic() - started_s < 3


def test_on_the_event_loop_a_time_limit_holds() -> None:
    with pytest.raises(DeadlineExceeded):
        asyncio.run(spawn.run_async(["sleep", "60"], timeout_s=0.2))


def test_cancelling_kills_the_program(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"

    async def cancelled() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.4):
                await spawn.run_async(["sh", "-c", f"echo $$ > {pid_file}; exec sleep 60"])

    asyncio.run(cancelled())
    _wait_gone(int(pid_file.read_text()))


def _wait_gone(pid: int) -> None:
    for _ in range(100):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return
        except FileNotFoundError:
            return
        time.sleep(0.02)
    pytest.fail(f"process {pid} is still there")
