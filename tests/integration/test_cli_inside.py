"""The inside of a real sandbox from the command line: processes, files, ports."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from atoll import Sandbox
from atoll.cli.main import atoll
from atoll.client import Output
from atoll.testing.server import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def sandbox(server: Server) -> Iterator[Sandbox]:
    with server.create("base", timeout_s=600) as made:
        yield made


@pytest.fixture(autouse=True)
def here(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATOLL_URL", server.url)
    monkeypatch.setenv("ATOLL_API_KEY", server.key)


def run(*words: str) -> Result:
    answer = CliRunner().invoke(atoll, words, standalone_mode=False)
    if answer.exception is not None:
        raise answer.exception
    return answer


def test_processes(sandbox: Sandbox) -> None:
    """Started, listed, read while it runs, signalled; and followed to an end whose code is passed on."""
    line = "echo one; echo two >&2; trap 'echo got; exit 5' USR1; while :; do sleep 0.05; done"
    started = run("process", "start", sandbox.id, "--tag", "job", "-e", "A=1", line).stdout.strip()
    process = sandbox.commands.attach("job")
    assert process.id == started
    wait_until(lambda: "one" in run("process", "logs", sandbox.id, "job").stdout, 10)
    assert "two" in run("process", "logs", sandbox.id, str(process.pid)).stderr
    (shown,) = [row for row in run("process", "ls", sandbox.id).stdout.splitlines() if started in row]
    assert shown.split()[1:5] == [str(process.pid), "job", "user", "running"]
    run("process", "signal", sandbox.id, "job", "USR1")
    assert run("process", "logs", "-f", sandbox.id, started).return_value == 5
    views = json.loads(run("process", "ls", sandbox.id, "--json").stdout)
    assert [view["exit_code"] for view in views if view["id"] == started] == [5]


def test_what_there_is_of_a_process_is_read_once(sandbox: Sandbox) -> None:
    process = sandbox.commands.start("echo first; read line; echo $line", stdin=True)
    seen: list[str] = []

    def read() -> bool:
        seen.extend(event.text for event in process.read() if isinstance(event, Output))
        return bool(seen)

    wait_until(read, 10)
    assert seen == ["first\n"]
    assert process.read() == []
    process.write("second\n")
    assert process.wait().stdout == "second\n"
    assert process.read() == []


def test_files(sandbox: Sandbox) -> None:
    sandbox.files.write_many({"p/a.py": "x = 1\ny = 22\n", "p/sub/b.txt": "x"})
    place = f"{sandbox.id}:p"
    listed = run("file", "ls", "--depth", "2", place).stdout
    assert [row.split()[-1] for row in listed.splitlines()[1:]] == [
        "/home/user/p/a.py",
        "/home/user/p/sub",
        "/home/user/p/sub/b.txt",
    ]
    assert run("file", "find", place, "*.py").stdout.splitlines()[1].endswith("/home/user/p/a.py")
    assert run("file", "search", place, r"y = \d+").stdout == "/home/user/p/a.py:2:1: y = 22\n"
    assert run("file", "search", place, "nothing").return_value == 1
    assert json.loads(run("file", "stat", f"{place}/a.py").stdout)["size"] == 13
    with urllib.request.urlopen(run("file", "url", f"{place}/a.py").stdout.strip(), timeout=10) as answer:
        assert answer.read() == b"x = 1\ny = 22\n"
    put = urllib.request.Request(run("file", "url", "--upload", f"{place}/new").stdout.strip(), b"new", method="PUT")
    urllib.request.urlopen(put, timeout=10).close()
    assert sandbox.files.read("p/new") == "new"


def test_watches_of_files_and_ports(sandbox: Sandbox) -> None:
    """Each prints a line for what happens, as it happens."""
    sandbox.files.mkdir("watched")
    with following("file", "watch", f"{sandbox.id}:watched") as files, following("port", "watch", sandbox.id) as ports:
        assert files.stderr is not None
        assert files.stderr.readline() == "watching\n"
        sandbox.files.write("watched/a", "1")
        assert files.stdout is not None
        assert "/home/user/watched/" in files.stdout.readline()
        server = sandbox.commands.start(["python3", "-m", "http.server", "8123"])
        run("port", "wait", sandbox.id, "8123")
        assert ports.stdout is not None
        assert ports.stdout.readline().split()[1] == "8123"
        server.kill()
        assert ports.stdout.readline().startswith("closed 8123")
        files.terminate()
        ports.terminate()


def following(*words: str) -> subprocess.Popen[str]:
    code = "from atoll.cli.main import main; main()"
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", code, *words], stdout=pipe, stderr=pipe, text=True)
