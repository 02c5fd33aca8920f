"""Why a sandbox ended: every reason, brought about on a real one, kept, and shown by API, SDK and command line."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from atoll import Sandbox
from atoll.model.errors import AtollError, LimitExceeded
from atoll.node import cgroups
from atoll.node.install.layout import Layout
from atoll.node.names import HostNames
from atoll.testing.server import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.real

MakeServer = Callable[..., Server]
ATOLL = str(Path(sys.executable).parent / "atoll")


def wait_ended(sandbox: Sandbox, state: str = "failed") -> tuple[str | None, str]:
    wait_until(lambda: sandbox.info().state == state, 20, f"it is {state}")
    view = sandbox.info()
    return view.end_reason, view.end_detail


def group_file(server: Server, sandbox: Sandbox, controller: str, name: str) -> Path:
    """A file of the control group of a sandbox, on either version of the interface."""
    group = HostNames.of(server.data).cgroup(server.box_of(sandbox.id))
    one = cgroups.ROOT / group / name
    return one if one.exists() else cgroups.ROOT / controller / group / name


def kill_sentry(server: Server, sandbox: Sandbox) -> None:
    os.kill(server.entry_of(sandbox.id)["live"]["pid"], signal.SIGKILL)


def test_a_kill_says_by_whom(server: Server) -> None:
    sandbox = server.create()
    sandbox.kill()
    reason, detail = wait_ended(sandbox, "killed")
    assert reason == "killed_by_user"
    keys = server.request("GET", "/v1/keys").json()["items"]
    assert detail == f"by the key {keys[0]['id']}"


def test_a_deadline(server: Server) -> None:
    assert wait_ended(server.create(timeout_s=1), "killed")[0] == "deadline"


def test_a_spent_budget(server: Server) -> None:
    killed = server.create(timeout_s=600, budget_s=1)
    assert wait_ended(killed, "killed")[0] == "budget_spent"
    paused = server.create(timeout_s=600, budget_s=1, on_budget="pause")
    paused.files.write("note", "kept")
    wait_until(lambda: paused.info().state == "paused", 20)
    assert paused.info().sleep_reason == "budget_spent"
    with pytest.raises(LimitExceeded) as caught:
        paused.resume()
    assert caught.value.code == "budget_spent"
    environment = {**os.environ, "ATOLL_URL": server.url, "ATOLL_API_KEY": server.key}
    shown = subprocess.run([ATOLL, "sandbox", "ls"], env=environment, capture_output=True, text=True, check=True)
    assert "paused (budget_spent)" in shown.stdout
    subprocess.run([ATOLL, "sandbox", "budget", paused.id, "--seconds", "600"], env=environment, check=True)
    paused.resume()
    assert paused.files.read("note") == "kept"
    paused.kill()


def test_out_of_memory(server: Server) -> None:
    """The guard inside knows the limit that it was told. With less on the host the kernel is the one that acts."""
    sandbox = server.create(memory="512MiB")
    sandbox.commands.run("true")
    name = "memory.max" if cgroups.detect().version == 2 else "memory.limit_in_bytes"
    group_file(server, sandbox, "memory", name).write_text(str(160 << 20))
    hog = "b = bytearray(400 << 20)\nfor i in range(0, len(b), 4096): b[i] = 1"
    with suppress(AtollError):  # it may end before it has answered
        sandbox.commands.run(["python3", "-c", hog])
    assert wait_ended(sandbox)[0] == "out_of_memory"


def test_pids(server: Server) -> None:
    sandbox = server.create()
    sandbox.commands.run("true")
    group_file(server, sandbox, "pids", "pids.max").write_text("1")
    with suppress(AtollError):  # the runtime cannot make the threads that this needs
        for _ in range(20):
            sandbox.commands.run("sleep 0.1 & sleep 0.1 & sleep 0.1 & wait", timeout_s=5)
    assert wait_ended(sandbox)[0] == "pids"


def test_a_runtime_that_dies(server: Server) -> None:
    sandbox = server.create()
    kill_sentry(server, sandbox)
    assert wait_ended(sandbox)[0] == "runtime_died"


def test_a_runtime_that_dies_on_a_full_disk(server: Server) -> None:
    sandbox = server.create(disk="32MiB")
    assert sandbox.commands.run("head -c 64M /dev/zero > big").exit_code != 0
    assert sandbox.info().state == "running", "a full disk alone ends nothing"
    kill_sentry(server, sandbox)
    assert wait_ended(sandbox)[0] == "disk"


def test_a_machine_that_was_restarted(make_server: MakeServer) -> None:
    server = make_server()
    sandbox = server.create(timeout_s=600)
    server.kill()
    kill_sentry(server, sandbox)
    (server.data / "boot").write_text("another\n")
    server.start()
    found = server.connect(sandbox.id)
    assert wait_ended(found)[0] == "node_lost"
    found.close()


def test_a_start_that_fails_has_a_log(make_server: MakeServer, layout: Layout, tmp_path: Path) -> None:
    """A runtime that creates and then does not start; its complaint is in the log, and nothing of the host is."""
    runsc = tmp_path / "runsc"
    real = replace(layout, runsc=None).runsc_path()
    runsc.write_text(
        '#!/bin/sh\nfor word in "$@"; do\n'
        '  if [ "$word" = start ]; then echo "the start was spoilt in $0" >&2; exit 1; fi\ndone\n'
        f'exec {shutil.which(str(real))} "$@"\n'
    )
    runsc.chmod(0o755)
    server = make_server(ATOLL_RUNSC=str(runsc))
    with pytest.raises(AtollError) as caught:
        server.create()
    assert caught.value.code == "start_failed"
    (row,) = server.rows()
    assert (row["state"], row["end_reason"]) == ("failed", "start_failed")
    assert f"atoll sandbox start-log {row['id']}" in caught.value.hint
    log = server.connect(row["id"]).start_log()
    assert "boundary_create" in log
    assert "the start was spoilt" in log
    assert str(tmp_path) not in log
    environment = {**os.environ, "ATOLL_URL": server.url, "ATOLL_API_KEY": server.key}
    shown = subprocess.run(
        [ATOLL, "sandbox", "start-log", row["id"]], env=environment, capture_output=True, text=True, check=True
    )
    assert shown.stdout == log + "\n"
    assert not server.boxes()
