"""What wakes a sandbox that pauses, and what becomes of a command that runs meanwhile, with the Python client."""

from __future__ import annotations

import os
import urllib.error
import urllib.request
from datetime import UTC, datetime
from typing import Any

import runner
from e2b import SandboxNotRunningException, SandboxState, TimeoutException
from e2b_code_interpreter import Sandbox
from runner import raised

WAKES: Any = {"on_timeout": "pause", "auto_resume": True}


def _asleep(sandbox: Any) -> Any:
    assert sandbox.pause() is True
    assert sandbox.get_info().state == SandboxState.PAUSED
    return sandbox


def _awake(sandbox: Any, timeout_s: float) -> None:
    """It runs, with as much time as it was made with."""
    found = sandbox.get_info()
    assert found.state == SandboxState.RUNNING
    left_s = (found.end_at - datetime.now(UTC)).total_seconds()
    assert timeout_s - 20 < left_s <= timeout_s, left_s


def _address(sandbox: Any, port: int) -> urllib.request.Request:
    if os.environ.get("E2B_DOMAIN"):
        return urllib.request.Request(f"https://{sandbox.get_host(port)}/page")
    named = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": str(port)}
    return urllib.request.Request(f"{os.environ['E2B_SANDBOX_URL']}/page", headers=named)


def _get(request: urllib.request.Request) -> bytes:
    with urllib.request.urlopen(request) as answer:
        return bytes(answer.read())


def case_code_wakes_a_sandbox() -> None:
    sandbox = Sandbox.create(timeout=60, lifecycle=WAKES)
    sandbox.run_code("x = 41")
    assert _asleep(sandbox).run_code("x + 1").text == "42"
    _awake(sandbox, 60)
    sandbox.kill()


def case_files_and_commands_wake_a_sandbox() -> None:
    sandbox = Sandbox.create("base", timeout=60, lifecycle=WAKES)
    sandbox.files.write("f", "1")
    calls: list[Any] = [
        lambda: sandbox.files.read("f"),
        lambda: sandbox.files.list("/home/user"),
        lambda: sandbox.files.write("g", "2"),
        lambda: sandbox.commands.run("true"),
    ]
    for call in calls:
        _asleep(sandbox)
        call()
        _awake(sandbox, 60)
    sandbox.kill()


def case_a_port_wakes_a_sandbox() -> None:
    sandbox = Sandbox.create("base", timeout=60, lifecycle=WAKES)
    sandbox.files.write("/tmp/web/page", "served")
    sandbox.commands.run("python3 -m http.server 8000 -d /tmp/web", background=True)
    sandbox.commands.run("until curl -sf localhost:8000/page; do sleep 0.1; done")
    _asleep(sandbox)
    assert _get(_address(sandbox, 8000)) == b"served"
    _awake(sandbox, 60)
    sandbox.kill()


def case_one_that_may_not_wake_stays_asleep() -> None:
    sandbox = Sandbox.create(timeout=60, lifecycle={"on_timeout": "pause"})
    _asleep(sandbox)
    raised(SandboxNotRunningException, lambda: sandbox.files.read("f"))
    raised(TimeoutException, lambda: sandbox.run_code("1"))
    error = raised(urllib.error.HTTPError, lambda: _get(_address(sandbox, 8000)))
    assert (error.code, b"was not found" in error.read()) == (502, True)
    error.close()
    assert sandbox.get_info().state == SandboxState.PAUSED
    sandbox.kill()


def case_a_command_goes_on_after_a_pause() -> None:
    """Who listened hears that the sandbox sleeps; when it is awake the command is where it was."""
    sandbox = Sandbox.create("base", timeout=60)
    command = sandbox.commands.run(
        "echo begun; until [ -e /tmp/go ]; do sleep 0.1; done; echo ended; exit 3", background=True
    )
    _asleep(sandbox)
    raised(SandboxNotRunningException, lambda: command.wait())
    again = Sandbox.connect(sandbox.sandbox_id, timeout=60)
    assert command.pid in [entry.pid for entry in again.commands.list()]
    joined = again.commands.connect(command.pid)
    again.files.write("/tmp/go", "")
    error: Any = raised(Exception, lambda: joined.wait())
    assert (error.exit_code, error.stdout) == (3, "ended\n")
    again.kill()


if __name__ == "__main__":
    runner.main(globals())
