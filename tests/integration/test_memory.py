"""The memory guard in a real sandbox: the hog is ended and named, the sandbox lives on."""

from __future__ import annotations

import pytest

from atoll.model.errors import AtollError
from atoll.testing.server import Server

pytestmark = pytest.mark.real

HOG = "data = []\nwhile True: data.append(bytearray(8 << 20))"
SLOW_HOG = f"import time\n{HOG}; time.sleep(0.02)"  # also on a busy host the guard has its turn before it is too late
FORKED = "import os\nfor _ in range(7):\n    if os.fork() == 0: break\n" + HOG


@pytest.mark.parametrize("memory", ["256MiB", "512MiB", "1GiB"])
@pytest.mark.parametrize("program", [HOG, FORKED], ids=["one", "eight"])
def test_a_hog_is_ended_and_the_sandbox_lives_on(server: Server, memory: str, program: str) -> None:
    with server.create("base", memory=memory) as sandbox:
        quiet = sandbox.commands.start("sleep 60")
        result = sandbox.commands.run(["python3", "-c", program], timeout_s=60)
        assert result.oom
        assert result.signal == 9 or program is FORKED
        assert sandbox.metrics.now().oom_kills >= 1
        assert sandbox.commands.run("echo alive").stdout == "alive\n"
        assert quiet.info().running
        assert sandbox.info().state == "running"


def test_the_first_program_of_a_sandbox_may_be_the_hog(server: Server) -> None:
    """The guard rests while nothing runs: it wakes when the program is there, not when it is asked for."""
    with server.create("base", memory="512MiB") as sandbox:
        for _ in range(2):
            result = sandbox.commands.run(["python3", "-c", SLOW_HOG], timeout_s=60)
            assert (result.oom, result.signal) == (True, 9)


def test_a_fork_bomb_leaves_the_sandbox_usable(server: Server) -> None:
    with server.create("base", pids=128) as sandbox:
        bomb = sandbox.commands.start("b() { b | b & }; b; sleep 30", timeout_s=3)
        bomb.wait()
        try:
            sandbox.commands.run("pkill -9 bash", user="root", timeout_s=20)
        except AtollError as error:
            assert error.code in ("too_many_processes", "busy")  # noqa: PT017 - it may or may not be raised
        assert sandbox.commands.run("echo alive", user="root", timeout_s=20).stdout == "alive\n"
        assert sandbox.info().state == "running"
