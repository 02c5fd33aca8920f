"""Shell sessions in a real sandbox: what stays, what ends, and output that pretends."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from atoll import Sandbox
from atoll.model.errors import AtollError, CommandFailed, Conflict
from atoll.testing.server import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def sandbox(server: Server) -> Iterator[Sandbox]:
    with server.create("base", timeout_s=600) as made:
        yield made


def test_folder_variables_functions_and_aliases_stay(sandbox: Sandbox) -> None:
    with sandbox.shell(env={"GIVEN": "yes"}) as sh:
        sh.run("cd /tmp; X=1; export Y=2; f() { echo f $1; }; alias hi='echo hello'; declare -A m=([a]=b)")
        assert sh.run("echo $X $PWD $GIVEN; f 3; hi; echo ${m[a]}").stdout == "1 /tmp yes\nf 3\nhello\nb\n"
        assert sh.run("bash -c 'echo $X-$Y'").stdout == "-2\n"


def test_streams_apart_and_a_code_for_each_command(sandbox: Sandbox) -> None:
    with sandbox.shell() as sh:
        result = sh.run("echo out; echo err >&2; (exit 3)")
        assert (result.stdout, result.stderr, result.exit_code) == ("out\n", "err\n", 3)
        assert sh.run("echo $?").stdout == "3\n"
        assert sh.run("true").ok
        broken = sh.run("if (")
        assert broken.exit_code != 0
        assert "syntax error" in broken.stderr
        assert sh.run("cat <<E\nhere $((1+1))\nE\n").stdout == "here 2\n"
        with pytest.raises(CommandFailed):
            sh.run("false", check=True)


def test_output_cannot_pass_for_the_end_of_a_command(sandbox: Sandbox) -> None:
    """Children have no descriptor to say anything on, and words on the output are output."""
    with sandbox.shell() as sh:
        result = sh.run("printf '%s 0 /tmp\\0' 00000000000000000000; ls /proc/self/fd | sort -n | tail -1")
        assert result.stdout.startswith("0000")
        assert int(result.stdout.split("\0")[-1]) < 20
        assert sh.run("head -c 3000000 /dev/zero").stdout_bytes == bytes(3_000_000)
        assert sh.run("sleep 60 & echo at once").stdout == "at once\n"
        assert sh.run("echo next").stdout == "next\n"


@pytest.mark.parametrize(
    "command", ["sleep 60; echo no", "while :; do :; done", "f() { sleep 60; f; }; f", "cat | sleep 60"]
)
def test_a_time_limit_ends_the_command_and_not_the_session(sandbox: Sandbox, command: str) -> None:
    with sandbox.shell() as sh:
        sh.run("KEPT=1")
        result = sh.run(command, timeout_s=0.5)
        assert result.timed_out
        assert result.exit_code == 124
        assert result.duration_s < 10
        assert sh.run("echo $KEPT").stdout == "1\n"
        assert sandbox.commands.run("pgrep -x sleep", user="root").exit_code in (0, 1)


def test_a_time_limit_ends_what_its_own_command_started_and_nothing_else(sandbox: Sandbox) -> None:
    """What an earlier command left in the background goes on; what this one hid from its shell does not."""
    hidden = "(trap '' TERM; setsid sleep 4712 >/dev/null 2>&1 &)"
    with sandbox.shell() as sh:
        sh.run("sleep 4711 >/dev/null 2>&1 &")
        sh.run(f"sleep 0.1; {hidden} ; sleep 4713", timeout_s=0.5)
        wait_until(lambda: not running(sandbox, "471[23]"), 10, "what the command started is gone")
        assert running(sandbox, "4711") == 1
    wait_until(lambda: not running(sandbox, "4711"), 10, "it ends with the session")


def running(sandbox: Sandbox, seconds: str) -> int:
    return int(sandbox.commands.run(f"pgrep -c -f '^sleep {seconds}'").stdout)


def test_exit_ends_the_session(sandbox: Sandbox) -> None:
    with sandbox.shell() as sh:
        assert sh.run("echo bye; exit 7").exit_code == 7
        with pytest.raises(Conflict):
            sh.run("echo again")


def test_one_command_at_a_time_and_another_user(sandbox: Sandbox) -> None:
    with sandbox.shell(user="root", cwd="/etc", login=True) as sh:
        assert sh.run("whoami; pwd").stdout == "root\n/etc\n"
        with pytest.raises(AtollError):
            sandbox.shell(cwd="/nonesuch").start()
