"""What a real sandbox uses: now, per process, over time, and on a person's screen."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from atoll.testing.server import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.real


def test_the_disk_is_the_sandboxs_own_and_time_that_was_used_stays_used(server: Server) -> None:
    with server.create("base", disk="1GiB") as sandbox:
        before = sandbox.metrics.now()
        assert before.disk_total_bytes == 2**30
        assert 2**30 - 64 * 2**20 < before.disk_available_bytes <= 2**30
        sandbox.commands.run("head -c 300M /dev/zero > big; sync", check=True)
        wait_until(lambda: sandbox.metrics.now().disk_available_bytes < 2**30 - 300 * 2**20, 40, "it is counted")
        busy = sandbox.commands.run("timeout 1 bash -c 'while :; do :; done'")
        assert busy.exit_code == 124
        assert sandbox.metrics.now().cpu_s > before.cpu_s + 0.3  # though the program that used it is gone


def test_metrics_now_per_process_and_over_time(server: Server) -> None:
    with server.create("base", memory="512MiB") as sandbox:
        busy = sandbox.commands.start("exec -a busy-one bash -c 'while :; do :; done'")
        before = sandbox.metrics.now()
        assert 400 * 2**20 < before.memory_total_bytes <= 512 * 2**20
        assert 0 < before.memory_available_bytes <= before.memory_total_bytes
        wait_until(lambda: sandbox.metrics.now().cpu_s > before.cpu_s, 10, "CPU time is counted")
        usages = sandbox.metrics.processes()
        assert [usage.pid for usage in usages if "busy-one" in usage.command] == [busy.pid]
        assert all(usage.pid != 1 for usage in usages)
        wait_until(lambda: len(sandbox.metrics.history().items) >= 2, 20, "two samples")
        first, second = sandbox.metrics.history().items[:2]
        assert second.at > first.at
        assert second.cpu_s > first.cpu_s
        assert second.memory_bytes > 2**20
        assert second.network_sent_bytes > 0
        command = [sys.executable, "-m", "atoll", "sandbox", "top", sandbox.id, "--once"]
        environment = {**os.environ, "ATOLL_URL": server.url, "ATOLL_API_KEY": server.key}
        shown = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, check=True).stdout
        assert "busy-one" in shown
        assert "memory" in shown.splitlines()[1]


def test_the_number_of_processes_is_there_over_time(server: Server) -> None:
    """While it is busy too, as its memory is on the move; and nothing wakes up one that sleeps."""
    with server.create("base") as sandbox:

        def now() -> int:
            items = sandbox.metrics.history().items
            return (items[-1].processes or 0) if items else 0

        churn = "while :; do head -c 60M /dev/zero | tail -c 50M > /dev/null; done"
        sandbox.commands.start(f"for i in $(seq 30); do sleep 300 & done; {churn}")
        wait_until(lambda: now() > 30, 20, "they are counted")
        assert now() <= sandbox.metrics.now().processes + 5
        sandbox.standby()
        count = len(sandbox.metrics.history().items)
        wait_until(lambda: len(sandbox.metrics.history().items) > count, 20, "one sample more")
        assert now() > 30, "what it had when it fell asleep"
        assert sandbox.info().state == "standby"
