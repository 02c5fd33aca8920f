"""A sandbox whose inside does not answer, as a user of E2B's Python client meets it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from atoll.node import cgroups
from atoll.node.names import HostNames
from atoll.testing.server import Server
from tests.compat.e2b.clients import Client
from tests.compat.e2b.conftest import environment_of

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

PROGRAM = """
import json, os, signal
from e2b import Sandbox, SandboxUnreachableException, ServiceBusyException

def sent(number):
    for pid in json.loads(os.environ["PIDS"]):
        os.kill(pid, number)

sandbox = Sandbox.connect(os.environ["SANDBOX"])
sent(signal.SIGSTOP)
try:
    for call in (lambda: sandbox.pause(strict=True), lambda: sandbox.pause(mode="filesystem")):
        try:
            call()
            raise AssertionError("it was paused")
        except ServiceBusyException as error:
            assert "does not respond" in str(error), error
    try:
        sandbox.commands.run("true")
        raise AssertionError("it answered")
    except SandboxUnreachableException:
        pass
finally:
    sent(signal.SIGCONT)
assert sandbox.commands.run("echo alive").stdout == "alive\\n"
assert sandbox.pause(strict=True) is True
"""


def test_a_pause_is_refused_and_nothing_is_lost(make_server: Callable[..., Server], tmp_path: Path) -> None:
    server = make_server(ATOLL_WARM_SIZE="0")
    sandbox = server.request("POST", "/v2/sandboxes", json={"templateID": "base", "timeout": 100}).json()["sandboxID"]
    (box,) = server.boxes()
    pids = cgroups.detect().pids(HostNames.of(server.data).cgroup(box))
    client = Client("python", "new")
    environment = environment_of(server, tmp_path) | {"SANDBOX": sandbox, "PIDS": json.dumps(sorted(pids))}
    argv = [str(client.folder / "bin" / "python"), "-c", PROGRAM]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
