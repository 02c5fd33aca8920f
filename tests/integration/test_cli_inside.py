"""The inside of a real sandbox from the command line: processes, files, ports."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import click
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


def run(*words: str, input: bytes | None = None) -> Result:
    answer = CliRunner().invoke(atoll, words, input=input, standalone_mode=False)
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
    assert run("sandbox", "exec", "--login", sandbox.id, "shopt login_shell").stdout.split() == ["login_shell", "on"]
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


def test_files_are_read_written_and_changed(sandbox: Sandbox, tmp_path: Path) -> None:
    place = f"{sandbox.id}:changed"
    run("file", "write", f"{place}/a.txt", "--mode", "640", input=b"one\n")
    run("file", "write", f"{place}/a.txt", "--append", input=b"two\n")
    (tmp_path / "local").write_bytes(b"local")
    run("file", "write", f"{place}/b.txt", str(tmp_path / "local"))
    assert run("file", "read", f"{place}/a.txt").stdout_bytes == b"one\ntwo\n"
    run("file", "read", f"{place}/b.txt", "-o", str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == b"local"
    run("file", "mkdir", f"{place}/x/y", f"{place}/z")
    run("file", "cp", f"{place}/a.txt", f"{sandbox.id}:changed/x/y/c.txt")
    run("file", "mv", "-p", f"{place}/b.txt", "changed/new/b.txt")
    run("file", "ln", "new/b.txt", f"{place}/link")
    run("file", "touch", f"{place}/empty", f"{place}/other")
    run("file", "chmod", "755", f"{place}/a.txt", f"{place}/empty")
    run("file", "chown", "-u", "root", "root:root", f"{sandbox.id}:/home/user/changed/empty")
    run("file", "rm", "-f", f"{place}/other", f"{place}/never")
    run("file", "rm", "-r", f"{place}/z")
    views = {view.path.removeprefix("/home/user/changed/"): view for view in sandbox.files.list("changed", depth=9)}
    assert sorted(views) == ["a.txt", "empty", "link", "new", "new/b.txt", "x", "x/y", "x/y/c.txt"]
    assert (views["a.txt"].mode, views["empty"].owner, views["link"].link_target) == (0o755, "root", "new/b.txt")
    assert run("file", "replace", place, "t.o", "2", "--dry-run").stdout.startswith("1  /home/user/changed/a.txt\n")
    run("file", "replace", f"{place}/a.txt", "t.o", "2")
    assert sandbox.files.read("changed/a.txt") == "one\n2\n"
    with pytest.raises(click.UsageError):
        run("file", "mv", f"{place}/a.txt", "another-sandbox:a.txt")


def test_archives_go_through_a_pipe(sandbox: Sandbox, tmp_path: Path) -> None:
    sandbox.files.write_many({"packed/a": "a", "packed/b": "b"})
    packed = run("file", "pack", f"{sandbox.id}:packed", "--format", "tar.gz", "a").stdout_bytes
    run("file", "unpack", f"{sandbox.id}:unpacked", "--format", "tar.gz", input=packed)
    run("file", "pack", f"{sandbox.id}:packed", "--format", "zip", "-o", str(tmp_path / "all.zip"))
    assert (
        "2 entries" in run("file", "unpack", f"{sandbox.id}:two", str(tmp_path / "all.zip"), "--format", "zip").stderr
    )
    assert sandbox.commands.run("cat unpacked/* two/*").stdout == "aab"


def test_input_reaches_a_process_that_runs(sandbox: Sandbox) -> None:
    run("process", "start", sandbox.id, "--tag", "reader", "--stdin", "cat; echo end")
    run("process", "stdin", sandbox.id, "reader", input=b"first\n")
    run("process", "stdin", sandbox.id, "reader", "--close", input=b"second\n")
    assert sandbox.commands.attach("reader").wait().stdout == "first\nsecond\nend\n"
    terminal = sandbox.commands.start("read line; stty size", pty=(80, 24), tag="sized")
    run("process", "resize", sandbox.id, "sized", "120", "40")
    terminal.write("go\n")
    assert "40 120" in terminal.wait().stdout


def test_git(sandbox: Sandbox) -> None:
    sandbox.commands.run("git init -q --bare -b main srv/c.git", check=True)
    place = f"{sandbox.id}:repo"
    run("git", "clone", sandbox.id, "file:///home/user/srv/c.git", "repo")
    sandbox.files.write("repo/a.txt", "1\n")
    assert run("git", "status", place).stdout.splitlines()[1:] == [" ? a.txt"]
    run("git", "add", place)
    who = ("--author-name", "Me", "--author-email", "me@example.org")
    run("git", "commit", place, "-m", "First\n\nwith a body", *who)
    run("git", "push", place, "--branch", "main", "--set-upstream")
    run("git", "branch", place, "other")
    run("git", "checkout", place, "feature", "--create")
    assert run("git", "branch", place).stdout.splitlines()[1].split()[:2] == ["*", "feature"]
    sandbox.files.write("repo/a.txt", "2\n")
    assert "+2\n" in run("git", "diff", place, "a.txt").stdout
    run("git", "commit", place, "-a", "-m", "Second", *who)
    assert "+2\n" in run("git", "diff", place, "--base", "main").stdout
    assert [row.split()[-1] for row in run("git", "log", place).stdout.splitlines()] == ["MESSAGE", "Second", "First"]
    run("git", "checkout", place, "main")
    run("git", "branch", place, "--delete", "other")
    assert "Already up to date" in run("git", "pull", place).stdout
    assert [one["name"] for one in json.loads(run("git", "branch", place, "--json").stdout)] == ["feature", "main"]


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
