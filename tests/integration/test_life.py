"""The whole path, once: create, run, write, read, list, extend, kill."""

from __future__ import annotations

import asyncio

import pytest

from atoll import AsyncSandbox
from atoll.model.errors import AtollError, Conflict, InvalidArgument, NotFound
from atoll.testing.server import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.real


def test_from_create_to_kill(server: Server) -> None:
    """A command's output, exit code and environment; a file there and back; then nothing is left."""
    with server.create(env={"GREETING": "hello"}, metadata={"run": "7"}, name="first") as sandbox:
        result = sandbox.commands.run("echo $GREETING; echo oops >&2; exit 3")
        assert (result.stdout, result.stderr, result.exit_code) == ("hello\n", "oops\n", 3)
        sandbox.files.write("/home/user/a.txt", "some text é")
        assert sandbox.files.read("/home/user/a.txt") == "some text é"
        assert sandbox.commands.run("cat a.txt; whoami; pwd").stdout == "some text éuser\n/home/user\n"
        info = sandbox.info()
        assert (info.state, info.name, info.metadata) == ("running", "first", {"run": "7"})
        boxes = server.boxes()
        assert boxes
    ended = sandbox.info()
    assert (ended.state, ended.end_reason) == ("killed", "killed_by_user")
    assert ended.ended_at is not None
    wait_until(lambda: not server.boxes(), 5, "nothing of it is left")


def test_the_code_template_has_data_science(server: Server) -> None:
    with server.create("code") as sandbox:
        result = sandbox.commands.run(
            ["python3", "-c", "import pandas; print(pandas.DataFrame({'a': [1, 2]}).a.sum())"]
        )
        assert (result.stdout, result.exit_code) == ("3\n", 0), result.stderr


def test_output_is_streamed_while_it_comes(server: Server) -> None:
    with server.create() as sandbox:
        seen: list[str] = []
        result = sandbox.commands.run("echo one; sleep 0.3; echo two", on_stdout=seen.append)
        assert result.stdout == "one\ntwo\n"
        assert len(seen) >= 2


def test_user_cwd_stdin_and_timeout(server: Server) -> None:
    with server.create() as sandbox:
        assert sandbox.commands.run("id -u; pwd", user="root", cwd="/etc").stdout == "0\n/etc\n"
        assert sandbox.commands.run("cat", stdin="typed").stdout == "typed"
        slow = sandbox.commands.run("sleep 30 & sleep 30", timeout_s=1)
        assert slow.timed_out
        assert sandbox.commands.run("pgrep -c sleep").stdout.strip() == "0"


def test_background_processes_go_on(server: Server) -> None:
    with server.create() as sandbox:
        process = sandbox.commands.start("for i in 1 2 3; do echo $i; sleep 0.1; done")
        assert process.pid > 1
        assert sandbox.commands.attach(process.id).wait().stdout == "1\n2\n3\n"
        assert process.id in [view.id for view in sandbox.commands.list()]
        endless = sandbox.commands.start(["sleep", "1000"])
        endless.kill()
        assert endless.wait().signal == 9


def test_limits_hold(server: Server) -> None:
    """Memory, disk and processes end where they were set, and the sandbox lives on."""
    with server.create(memory="256MiB", disk="64MiB", pids=64) as sandbox:
        full = sandbox.commands.run("dd if=/dev/zero of=big bs=1M count=200")
        assert full.exit_code != 0
        assert "quota" in full.stderr.lower() or "no space" in full.stderr.lower(), full.stderr
        sandbox.commands.run("rm -f big")
        many = sandbox.commands.run("for i in $(seq 200); do sleep 5 & done; wait", timeout_s=20)
        assert "fork" in many.stderr or many.exit_code != 0
        assert sandbox.commands.run("echo alive").stdout == "alive\n"


def test_the_network_is_closed_and_the_host_out_of_sight(server: Server) -> None:
    with server.create() as sandbox:
        for address in ("10.0.0.1", "192.0.2.1", "169.254.169.254"):
            # The gate takes a connection to see where it wants to go; what counts is that nobody answers.
            probe = sandbox.commands.run(f"exec 3<>/dev/tcp/{address}/80; echo hello >&3; timeout 2 head -c 1 <&3")
            assert probe.stdout == ""
        assert sandbox.commands.run("getent hosts example.org").exit_code != 0
        assert "gvisor" in sandbox.commands.run("uname -r").stdout
        assert sandbox.commands.run(["test", "-e", str(server.data)]).exit_code == 1
        assert sandbox.commands.run("hostname").stdout.strip() != ""


def test_the_deadline_ends_it_with_that_reason(server: Server) -> None:
    sandbox = server.create(timeout_s=1)
    wait_until(lambda: sandbox.info().state == "killed", 5)
    assert sandbox.info().end_reason == "deadline"
    wait_until(lambda: not server.boxes(), 5)
    with pytest.raises(Conflict) as caught:
        sandbox.commands.run("true")
    assert caught.value.code == "not_running"


def test_the_deadline_can_be_moved(server: Server) -> None:
    with server.create(timeout_s=2) as sandbox:
        moved = sandbox.set_timeout(100)
        assert (moved.deadline_at - moved.created_at).total_seconds() > 50
        with pytest.raises(InvalidArgument) as caught:
            sandbox.set_timeout(-1)
        assert caught.value.code == "invalid_timeout"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"template": "nothing-like-it"}, "template_not_found"),
        ({"timeout_s": -1}, "invalid_timeout"),
        ({"cpu": 1e9}, "invalid_resources"),
        ({"memory": -5}, "invalid_resources"),
        ({"memory": 1024**4 - 1}, "exceeds_node"),
        ({"name": "Not A Name"}, "invalid_name"),
        ({"env": {"BAD NAME": "x"}}, "invalid_env"),
    ],
)
def test_bad_wishes_change_nothing(server: Server, options: dict[str, object], code: str) -> None:
    wait_until(lambda: not server.boxes(), 5)
    with pytest.raises(AtollError) as caught:
        server.create(**options)  # type: ignore[arg-type]
    assert caught.value.code == code
    assert not server.boxes()


def test_a_name_is_taken_until_its_sandbox_ends(server: Server) -> None:
    with server.create(name="only-one"):
        with pytest.raises(Conflict) as caught:
            server.create(name="only-one")
        assert caught.value.code == "name_taken"
    server.create(name="only-one").kill()


def test_what_does_not_exist(server: Server) -> None:
    with pytest.raises(NotFound) as caught:
        server.connect("sb" + "0" * 36)
    assert caught.value.code == "sandbox_not_found"
    assert server.request("GET", "/v1/nothing").json()["code"] == "not_found"


async def _burst(server: Server, count: int) -> list[str]:
    async def one(ids: list[str]) -> None:
        async with await AsyncSandbox.create("base", url=server.url, api_key=server.key) as sandbox:
            ids.append((await sandbox.commands.run("echo $HOSTNAME; cat /etc/machine-id")).stdout)

    found: list[str] = []
    async with asyncio.TaskGroup() as tasks:
        for _ in range(count):
            tasks.create_task(one(found))
    return found


def test_ten_at_once_are_ten_different_computers(server: Server) -> None:
    found = asyncio.run(_burst(server, 10))
    assert len(set(found)) == 10
    wait_until(lambda: not server.boxes(), 10, "nothing of them is left")
