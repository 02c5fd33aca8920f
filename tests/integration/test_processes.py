"""Processes in a real sandbox: terminals, tags, signals to trees, readers by offset, and many at once."""

from __future__ import annotations

import concurrent.futures
import json
from collections.abc import Iterator

import pytest

from atoll import Sandbox
from atoll.client import Output, ProcessExited
from atoll.model.errors import AtollError, NotFound
from atoll.testing.server import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def sandbox(server: Server) -> Iterator[Sandbox]:
    with server.create("base", timeout_s=600, memory="1GiB") as made:
        yield made


def test_a_process_on_a_terminal_has_a_size_that_changes(sandbox: Sandbox) -> None:
    process = sandbox.commands.start(
        "trap 'stty size; exit 0' WINCH; stty size; while :; do sleep 0.1; done", pty=(91, 17)
    )
    seen = ""
    for event in process:
        if isinstance(event, Output):
            if not seen:
                process.resize(120, 40)
            seen += event.text
    assert seen.split() == ["17", "91", "40", "120"]


def test_found_again_by_tag_pid_and_id(server: Server, sandbox: Sandbox) -> None:
    process = sandbox.commands.start("echo first; sleep 60", tag="my tag 1")
    for reference in (process.id, str(process.pid), "tag:my%20tag%201"):
        view = server.request("GET", f"/v1/sandboxes/{sandbox.id}/processes/{reference}").json()
        assert (view["id"], view["running"], view["tag"]) == (process.id, True, "my tag 1")
    assert sandbox.commands.attach("my tag 1").pid == process.pid
    process.kill()
    wait_until(lambda: not process.info().running, 5)
    assert process.info().signal == 9
    with pytest.raises(NotFound):
        sandbox.commands.attach("nobody")


def test_what_there_is_can_be_read_without_waiting(server: Server, sandbox: Sandbox) -> None:
    """Several readers, each from its own offset."""
    process = sandbox.commands.start("echo 0123456789; sleep 60")
    path = f"/v1/sandboxes/{sandbox.id}/processes/{process.id}/output?follow=false"

    def read(offset: int) -> list[dict[str, object]]:
        answer = server.request("GET", f"{path}&stdout_offset={offset}")
        return [json.loads(line) for line in answer.text.splitlines()]

    wait_until(lambda: len(read(0)) > 1, 5)
    assert [event["type"] for event in read(0)] == ["started", "output"]
    assert read(4)[1]["offset"] == 4
    assert len(read(11)) == 1
    process.kill()


def test_a_signal_reaches_the_whole_tree(sandbox: Sandbox) -> None:
    """Also what has left the group and the session of the process."""
    process = sandbox.commands.start("setsid sleep 61 & setsid sleep 62 & sleep 63 & wait")
    wait_until(lambda: sandbox.commands.run("pgrep -c -f '^sleep 6[123]'").stdout.strip() == "3", 5)
    process.signal("KILL", tree=True)
    assert process.wait().signal == 9
    wait_until(lambda: sandbox.commands.run("pgrep -c -f '^sleep 6[123]'").stdout.strip() == "0", 5)


def test_a_time_limit_finds_who_left_session_and_parents(sandbox: Sandbox) -> None:
    """A daemon has neither the session nor the parents of its command; its environment still says whose it is."""
    daemon = "(trap '' TERM; setsid sleep 71 >/dev/null 2>&1 &)"
    other = sandbox.commands.start("exec sleep 73")
    result = sandbox.commands.run(f"{daemon}; setsid -f sleep 72; sleep 60", timeout_s=0.5)
    assert result.timed_out
    wait_until(lambda: sandbox.commands.run("pgrep -c -f '^sleep 7[12]'").stdout.strip() == "0", 10)
    process = sandbox.commands.start(f"{daemon}; echo $ATOLL_PROCESS; sleep 60")
    first = next(event for event in process if isinstance(event, Output))
    assert first.text == f"{process.id}\n"
    process.signal("KILL", tree=True)
    wait_until(lambda: sandbox.commands.run("pgrep -c -f '^sleep 71'").stdout.strip() == "0", 5)
    assert other.info().running
    other.kill()


def test_any_signal_by_name_and_number(sandbox: Sandbox) -> None:
    for given in ("USR1", 10, "SIGUSR1"):
        process = sandbox.commands.start("trap 'echo got; exit 5' USR1; echo ready; while :; do sleep 0.05; done")
        events = iter(process)
        assert next(events)
        process.signal(given, group=False)
        assert process.wait().exit_code == 5
    with pytest.raises(AtollError):
        sandbox.commands.start("sleep 1").signal("NONESUCH")


def test_input_that_is_sent_again_is_not_read_twice(server: Server, sandbox: Sandbox) -> None:
    """A caller whose connection broke says where its bytes stand, and sends them once more."""
    process = sandbox.commands.start("cat", stdin=True)
    path = f"/v1/sandboxes/{sandbox.id}/processes/{process.id}/stdin"

    def send(content: bytes, query: str) -> dict[str, object]:
        answer: dict[str, object] = server.request("POST", f"{path}?{query}", content=content).json()
        return answer

    assert send(b"abcdef", "offset=0") == {"written": 6, "offset": 6}
    assert send(b"defghi", "offset=3") == {"written": 6, "offset": 9}
    assert send(b"abc", "offset=0") == {"written": 3, "offset": 9}
    assert send(b"?", "offset=10")["code"] == "wrong_state"
    assert send(b"?", "offset=-1")["code"] == "invalid_argument"
    assert process.info().stdin_offset == 9
    assert send(b"j", "close=true") == {"written": 1, "offset": 10}
    assert process.wait().stdout == "abcdefghij"


def test_login_shell_and_nice(sandbox: Sandbox) -> None:
    process = sandbox.commands.start("shopt -q login_shell && echo login; nice", login=True, nice=5)
    assert process.wait().stdout == "login\n5\n"


def test_a_hundred_at_once(sandbox: Sandbox) -> None:
    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        results = list(pool.map(lambda n: sandbox.commands.run(f"echo {n}; exit {n % 7}", timeout_s=60), range(100)))
    assert [(r.stdout, r.exit_code) for r in results] == [(f"{n}\n", n % 7) for n in range(100)]


def test_a_background_child_does_not_hold_the_end_up(sandbox: Sandbox) -> None:
    result = sandbox.commands.run("sleep 60 & echo done", timeout_s=20)
    assert (result.stdout, result.timed_out) == ("done\n", False)


def test_an_endless_writer_and_a_reader_that_never_reads(sandbox: Sandbox) -> None:
    """The writer is bounded by its ring; nobody else is slowed; what was lost is said."""
    writer = sandbox.commands.start("yes", tag="endless")
    events = iter(writer)
    next(events)  # this reader stops here, with its connection open
    assert sandbox.commands.run("echo still fast").stdout == "still fast\n"
    used = sandbox.metrics.now()
    assert used.memory_available_bytes > used.memory_total_bytes / 2
    writer.kill()
    last = list(sandbox.commands.attach(writer.id))[-1]
    assert isinstance(last, ProcessExited)


def test_a_user_may_be_a_number_and_a_shell_a_login_shell(server: Server, sandbox: Sandbox) -> None:
    assert sandbox.commands.run("id -un", user=0).stdout == "root\n"
    assert sandbox.commands.run("id -u; echo $HOME", user=4242).stdout == "4242\n/\n"
    assert "on" in sandbox.commands.run("shopt login_shell", login=True).stdout
    assert sandbox.files.stat("/root", user=0).type == "directory"
    with sandbox.shell(user=0) as sh:
        assert sh.run("id -u").stdout == "0\n"
    path = f"/v1/sandboxes/{sandbox.id}/processes?follow=false"
    assert server.request("POST", path, json={"cmd": "true", "user": 1000}).status_code == 201
    assert server.request("POST", path, json={"cmd": "true", "user": 1.5}).json()["code"] == "invalid_body"


def test_bad_wishes_have_their_own_codes(sandbox: Sandbox) -> None:
    for wish, code in (
        ({"cmd": ["nonesuch-program"]}, "no_such_program"),
        ({"cmd": "true", "cwd": "/nonesuch"}, "not_found"),
        ({"cmd": "true", "user": "nobody-here"}, "unknown_user"),
        ({"cmd": "true", "cwd": "/etc/passwd"}, "not_directory"),
        ({"cmd": ["true", "x" * 200_000]}, "too_large"),
        ({"cmd": "true", "timeout_s": 1e12}, "invalid_argument"),
    ):
        with pytest.raises(AtollError) as caught:
            sandbox.commands.start(**wish)
        assert caught.value.code == code
    with pytest.raises(AtollError) as caught:
        sandbox.commands.run("true", timeout_s=1e12)  # no clock of the caller's machine goes so far
    assert caught.value.code == "invalid_argument"
