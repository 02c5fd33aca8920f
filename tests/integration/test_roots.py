"""The guest runs in any root filesystem: one without Python, and one without a C library."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from atoll import Sandbox
from atoll.model import limits
from atoll.node.disks import btrfs
from atoll.node.disks.pool import Pool
from atoll.node.install import template_build, workplace
from atoll.node.install.layout import Layout
from atoll.testing.server import Server

pytestmark = pytest.mark.real


def add_busybox(layout: Layout, data: Path) -> None:
    """A root with nothing but a static busybox: no Python, no glibc, no loader."""
    with workplace.turn(layout.cache, print):
        template_build.ensure("busybox", layout, Pool.open(data), print)


def add_without_python(data: Path) -> None:
    """`base` with every trace of its Python removed."""
    templates = Pool.open(data).root / "templates"
    root = templates / "no-python"
    btrfs.snapshot_create(templates / "base", root)
    for path in [*root.glob("usr/bin/python3*"), *root.glob("usr/lib/python3*"), *root.glob("usr/share/python3*")]:
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    manifest = json.loads((templates / "base.json").read_text())
    (templates / "no-python.json").write_text(json.dumps({**manifest, "name": "no-python"}))


@pytest.fixture(scope="module")
def server(layout: Layout, server: Server) -> Server:
    """With both roots beside its own templates."""
    add_busybox(layout, server.data)
    add_without_python(server.data)
    return server


@pytest.mark.parametrize(("template", "user"), [("busybox", "root"), ("no-python", "user")])
def test_commands_and_files_without_python(server: Server, template: str, user: str, tmp_path: Path) -> None:
    with server.create(template) as sandbox:
        result = sandbox.commands.run("echo out; echo err >&2; exit 4", user=user)
        assert (result.stdout, result.stderr, result.exit_code) == ("out\n", "err\n", 4)
        assert sandbox.commands.run(["which", "python3"], user=user).exit_code != 0
        sandbox.files.write("/tmp/a", "content", user=user)
        assert sandbox.files.read("/tmp/a", user=user) == "content"
        assert sandbox.commands.run("cat /tmp/a", user=user).stdout == "content"
        sandbox.files.write("/tmp/large", bytes(limits.INCOMING_BYTES_MIN), user=user)
        assert sandbox.files.stat("/tmp/large", user=user).size == limits.INCOMING_BYTES_MIN
        check_files(sandbox, user, tmp_path)


@pytest.mark.parametrize("template", ["base", "code", "no-python"])
def test_processes_and_terminals_in_every_root(server: Server, template: str) -> None:
    with server.create(template) as sandbox:
        for user in ("user", "root"):
            check_processes(sandbox, user)
            check_terminal(sandbox, user)
            with sandbox.shell(user=user) as shell:
                shell.run("cd /var && export A=1")
                assert shell.run("echo $PWD $A $(id -un)").stdout == f"/var 1 {user}\n"


def check_processes(sandbox: Sandbox, user: str) -> None:
    result = sandbox.commands.run("id -un; echo $HOME; cat", stdin=b"in", user=user, cwd="/tmp")
    assert result.stdout == f"{user}\n{'/root' if user == 'root' else '/home/user'}\nin"
    assert sandbox.commands.run("sleep 60", timeout_s=0.2, user=user).timed_out
    started = sandbox.commands.start("echo one; sleep 60", user=user, tag=f"by-{user}")
    again = sandbox.commands.attach(f"by-{user}")
    assert again.pid == started.pid
    started.signal("KILL")
    assert started.wait().signal == 9


def check_terminal(sandbox: Sandbox, user: str) -> None:
    with sandbox.terminals.open("stty size; id -un; read line; exit $line", cols=90, rows=30, user=user) as terminal:
        terminal.write("7\n")
        shown = b"".join(terminal)
    assert b"30 90\r\n" in shown
    assert f"{user}\r\n".encode() in shown
    assert terminal.wait().exit_code == 7


def check_files(sandbox: Sandbox, user: str, tmp_path: Path) -> None:
    """What has code of its own: many at once, search, archives, folders, watches."""
    files = sandbox.files
    with files.watch("/tmp", recursive=True, user=user) as changes:
        assert files.write_many({"/tmp/t/one": "1", "/tmp/t/sub/two": "2"}, user=user) == 2
        assert any(getattr(change, "path", "") == "/tmp/t/sub/two" for change in changes)
    assert [match.path for match in files.search("/tmp/t", "2", user=user).items] == ["/tmp/t/sub/two"]
    for kind in ("tar", "tar.gz", "zip"):
        archive = b"".join(files.pack("/tmp/t", format=kind, user=user))
        assert files.unpack(archive, f"/tmp/{kind}", format=kind, user=user).bytes == 2
    assert files.pull("/tmp/t", tmp_path / "t", user=user).bytes == 2
    assert files.push(tmp_path / "t", "/tmp/back", user=user).entries == 3
    assert files.read("/tmp/back/sub/two", user=user) == "2"
