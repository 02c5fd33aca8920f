"""The memory guard in a real sandbox: the hog is ended and named, the sandbox lives on."""

from __future__ import annotations

import os
import signal
import subprocess
import time

import pytest

from atoll import Sandbox
from atoll.model import limits
from atoll.model.errors import AtollError
from atoll.node.names import HostNames
from atoll.node.network.plan import Pair
from atoll.testing.server import Server
from tests.waiting import wait_until

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
        now = sandbox.metrics.now()
        assert now.oom_kills >= 1
        assert now.oom_ended[-1].name == "python3"
        assert sandbox.commands.run("echo alive").stdout == "alive\n"
        assert quiet.info().running
        assert sandbox.info().state == "running"


def test_what_is_written_to_tmp_takes_no_memory(server: Server) -> None:
    """Nobody could be ended for it."""
    with server.create("base", memory="256MiB", disk="512MiB") as sandbox:
        quiet = sandbox.commands.start("sleep 60")
        sandbox.commands.run("head -c 400M /dev/zero > /tmp/large", check=True)
        assert sandbox.commands.run("cd /tmp && stat -c '%a %s' . large").stdout.split()[::3] == ["1777", "419430400"]
        assert quiet.info().running
        assert sandbox.metrics.now().oom_kills == 0
        assert not sandbox.commands.run("head -c 400M /dev/zero > /tmp/more").ok  # its disk is full


def test_the_first_program_of_a_sandbox_may_be_the_hog(server: Server) -> None:
    """The guard rests while nothing runs: it wakes when the program is there, not when it is asked for."""
    with server.create("base", memory="512MiB") as sandbox:
        for _ in range(2):
            result = sandbox.commands.run(["python3", "-c", SLOW_HOG], timeout_s=60)
            assert (result.oom, result.signal) == (True, 9)


def lines_to_guest(server: Server, sandbox: Sandbox) -> int:
    """Connections of the node to a guest: one to spare, and the one on which it says whether the guard may rest."""
    pair = Pair.of(HostNames.of(server.data), server.entry_of(sandbox.id)["slot"])
    argv = ["ip", "netns", "exec", pair.outer, "cat", "/proc/net/tcp"]
    table = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=10).stdout
    return sum(line.split()[2].endswith(":03E7") and line.split()[3] == "01" for line in table.splitlines()[1:])


def hog_behind(server: Server, sandbox: Sandbox, resting: str) -> None:
    """A program that nobody follows, which becomes eight hogs when it has rested long enough; and so does the guard."""
    sandbox.files.write("/tmp/hog.py", f"import os, time\nwhile {resting}: time.sleep(0.1)\n{FORKED}")
    sandbox.commands.run("setsid python3 /tmp/hog.py < /dev/null > /dev/null 2>&1 &", check=True)
    wait_until(lambda: lines_to_guest(server, sandbox) == 2, 30, "its guard is spoken to")
    # It is told that it may rest, and does. Neither shows from outside: there is only to wait for as long as it takes.
    time.sleep(limits.MEMORY_WATCH_CALM_S + limits.MEMORY_GUARD_ALERT_S + 1)


def wait_ended(sandbox: Sandbox, kills: int) -> None:
    wait_until(lambda: sandbox.metrics.now().oom_kills > kills, 30, "the hogs are ended")
    assert sandbox.commands.run("echo alive").stdout == "alive\n"
    assert sandbox.info().state == "running"


def test_a_program_at_rest_may_become_a_hog(server: Server) -> None:
    """Nobody tells the guard, which rests as well: the node sees memory move. The second one wakes up in a sandbox that
    was paused, whose image knows of a node that looks.
    """
    with server.create("base", memory="512MiB") as sandbox:
        hog_behind(server, sandbox, "not os.path.exists('/tmp/one')")
        sandbox.files.write("/tmp/one", "")
        wait_ended(sandbox, 0)
        hog_behind(server, sandbox, "not os.path.exists('/tmp/two')")
        kills = sandbox.metrics.now().oom_kills
        sandbox.pause()
        sandbox.resume()
        sandbox.files.write("/tmp/two", "")
        wait_ended(sandbox, kills)


def test_a_killed_server_leaves_the_guard_awake(server: Server) -> None:
    """The program begins when the node's connections are gone, and so is whoever looked from outside."""
    held = "any(':03E7' in line.split()[1] and line.split()[3] == '01' for line in open('/proc/net/tcp'))"
    sandbox = server.create("base", memory="512MiB")
    hog_behind(server, sandbox, held)
    server.kill()
    server.start()
    with server.connect(sandbox.id) as found:
        wait_ended(found, 0)


def test_a_stuck_server_leaves_the_guard_awake(server: Server) -> None:
    """Its connections stay open, and it says nothing: after a while the guard takes no silence for a look."""
    with server.create("base", memory="512MiB") as sandbox:
        moment = "not os.path.exists('/tmp/stuck') or time.time() < float(open('/tmp/stuck').read() or 'inf')"
        hog_behind(server, sandbox, moment)
        sandbox.files.write("/tmp/stuck", str(time.time() + limits.MEMORY_LEASE_S + 1))
        os.kill(server.pid, signal.SIGSTOP)
        try:
            time.sleep(limits.MEMORY_LEASE_S + 4)  # the hogs need less than one second to fill what there is
        finally:
            os.kill(server.pid, signal.SIGCONT)
        wait_ended(sandbox, 0)


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
