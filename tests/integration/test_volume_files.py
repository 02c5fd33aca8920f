"""Files of volumes without a sandbox, beside sandboxes, and against one that sets traps; and snapshots of volumes."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import anyio
import pytest
from click.testing import CliRunner

from atoll import AsyncVolume, Sandbox, Volume
from atoll.cli.volume import volume
from atoll.client import VolumeFiles
from atoll.model.errors import Conflict, Forbidden, InvalidArgument, NotFound, OutOfSpace
from atoll.node.disks import btrfs
from atoll.testing.server import Server

pytestmark = pytest.mark.real


@pytest.fixture
def data(server: Server) -> Iterator[VolumeFiles]:
    """The files of a volume of 32 MiB by the name `data`."""
    Volume.create("data", size="32MiB", url=server.url, api_key=server.key)
    with Volume.files("data", url=server.url, api_key=server.key) as files:
        yield files
    for name in ("data", "other"):
        with suppress(NotFound):
            Volume.delete(name, url=server.url, api_key=server.key)


def mounted(server: Server, volume: str = "data") -> Sandbox:
    return server.create(timeout_s=600, volumes={"/data": volume})


def test_files_while_nothing_runs(data: VolumeFiles, tmp_path: Path) -> None:
    data.write("/notes/a.txt", "hello")
    assert data.read("notes/a.txt") == "hello"
    assert data.read_bytes("/notes/a.txt", offset=1, length=3) == b"ell"
    big = bytes(range(256)) * 12_000
    assert data.write("/big", io.BytesIO(big)).size == len(big)
    assert data.read_bytes("/big") == big
    assert [(view.path, view.type) for view in data.list("/", depth=2)] == [
        ("/big", "file"),
        ("/notes", "directory"),
        ("/notes/a.txt", "file"),
    ]
    view = data.stat("/notes/a.txt")
    assert (view.size, view.mode, view.owner) == (5, 0o644, "1000")
    assert data.change("/notes/a.txt", mode=0o600, uid=0).owner == "0"
    data.mkdir("/x/y")
    data.move("/notes/a.txt", "/x/y/b.txt")
    assert data.exists("/x/y/b.txt")
    assert not data.exists("/notes/a.txt")
    (tmp_path / "local").write_bytes(b"from here")
    data.upload(tmp_path / "local", "/x/local")
    assert data.download("/x/local", tmp_path / "back") == 9
    assert (tmp_path / "back").read_bytes() == b"from here"
    with pytest.raises(Conflict):
        data.remove("/x")
    data.remove("/x", recursive=True)
    data.remove("/x", missing_ok=True)
    assert [view.name for view in data.list()] == ["big", "notes"]


def test_what_cannot_be(data: VolumeFiles, server: Server) -> None:
    data.write("/a", "1")
    for path in ("../a", "/a/../../b"):
        with pytest.raises(InvalidArgument):
            data.read(path)
    with pytest.raises(InvalidArgument):
        data.remove("/", recursive=True)
    with pytest.raises(InvalidArgument):
        data.write("/s", "1", mode=0o4755)
    with pytest.raises(Conflict):
        data.write("/a", "2", overwrite=False)
    with pytest.raises(NotFound) as caught:
        data.read("/nothing")
    assert caught.value.code == "not_found"
    with pytest.raises(NotFound) as caught:
        Volume.files("nothing-like-it", url=server.url, api_key=server.key).list()
    assert caught.value.code == "volume_not_found"
    with pytest.raises(OutOfSpace):
        data.write("/full", (b"x" * 2**20 for _ in range(64)))
    assert [view.name for view in data.list()] == ["a"]


def test_sandboxes_see_what_is_written_and_the_other_way_round(data: VolumeFiles, server: Server) -> None:
    data.write("/before", "1")
    with mounted(server) as sandbox:
        assert sandbox.files.read("/data/before") == "1"
        data.write("/before", "2")
        data.write("/during", "3")
        assert sandbox.commands.run("cat /data/before /data/during").stdout == "23"
        sandbox.commands.run("echo 4 > /data/during; mkdir /data/d; mv /data/before /data/d/", check=True)
        assert data.read("/during") == "4\n"
        assert [view.path for view in data.list("/", depth=2)] == ["/d", "/d/before", "/during"]
        data.remove("/d", recursive=True)
        assert sandbox.commands.run("ls /data").stdout == "during\n"


def test_a_sandbox_cannot_lead_the_server_out_of_the_volume(data: VolumeFiles, server: Server) -> None:
    with mounted(server) as sandbox:
        script = (
            "cd /data; ln -s /etc/passwd abs; ln -s ../../../../../../etc/passwd rel; ln -s /proc/self/environ env;"
            "ln -s .. up; mkdir deep; touch -d @99999999999 deep/late; ln -s deep/late good"
        )
        sandbox.commands.run(script, user="root", check=True)
        # A pipe that is made inside stays inside the boundary; should one get to the host, it is not opened.
        found = Volume.get("data", url=server.url, api_key=server.key)
        os.mkfifo(server.data / "pool" / "volumes" / found.id / "pipe")
        for path in ("/abs", "/rel", "/env", "/up/x", "/up"):
            with pytest.raises(Forbidden) as caught:
                data.read(path)
            assert caught.value.code == "outside_volume"
        for path in ("/abs", "/rel", "/up/x"):
            with pytest.raises(Forbidden):
                data.write(path, "x")
        with pytest.raises(InvalidArgument):
            data.read("/pipe")
        with pytest.raises(InvalidArgument):
            data.write("/pipe", "x")
        assert data.read("/good") == ""
        types = {view.name: view.type for view in data.list()}
        assert (types["pipe"], types["abs"]) == ("fifo", "symlink")
        assert data.stat("/deep/late").modified_at.year > 2200
        for name in types:
            data.remove(f"/{name}", recursive=True)
        assert data.list() == []


def test_what_a_paused_sandbox_had_open_must_be_there_when_it_wakes(data: VolumeFiles, server: Server) -> None:
    data.write("/open", "0123456789")
    with mounted(server) as sandbox:
        sandbox.commands.start("exec 3< /data/open; head -c 3 <&3 > /tmp/read; touch /tmp/ready; sleep 1000")
        sandbox.commands.run("until [ -e /tmp/ready ]; do sleep 0.05; done; echo kept > ~/kept", check=True)
        sandbox.pause()
        data.move("/open", "/aside")
        with pytest.raises(Conflict) as caught:
            sandbox.resume()
        assert caught.value.code == "volume_changed"
        assert sandbox.info().state == "paused"
        data.move("/aside", "/open")
        sandbox.resume()
        assert "sleep 1000" in sandbox.commands.run("ps -ef").stdout
        sandbox.pause()
        data.remove("/open")
        sandbox.resume(memory=False)
        assert sandbox.commands.run("cat ~/kept; ls /data").stdout == "kept\n"
        assert "sleep 1000" not in sandbox.commands.run("ps -ef").stdout


def test_a_snapshot_is_kept_cloned_and_gone_back_to(data: VolumeFiles, server: Server) -> None:
    where = {"url": server.url, "api_key": server.key}
    data.write("/note", "first")
    with mounted(server) as sandbox:
        kept = Volume.snapshot("data", "before", **where)
        sandbox.files.write("/data/note", "second")
        sandbox.files.write("/data/more", "x")
        with pytest.raises(Conflict) as caught:
            Volume.rollback("data", "before", **where)
        assert caught.value.code == "volume_in_use"
    latest = Volume.snapshot("data", **where)
    assert [view.id for view in Volume.snapshots("data", **where)] == [latest.id, kept.id]
    with pytest.raises(Conflict):
        Volume.snapshot("data", "before", **where)
    Volume.create("other", source="data", snapshot="before", **where)
    with Volume.files("other", **where) as other:
        assert other.read("/note") == "first"
    assert Volume.rollback("data", "before", **where).id == kept.id
    assert [view.name for view in data.list()] == ["note"]
    assert data.read("/note") == "first"
    data.write("/note", "third")
    Volume.rollback("data", latest.id, **where)
    assert (data.read("/note"), data.exists("/more")) == ("second", True)
    with pytest.raises(OutOfSpace):
        data.write("/full", (b"x" * 2**20 for _ in range(64)))  # the quota is still there
    Volume.delete_snapshot("data", "before", **where)
    with mounted(server, "other") as sandbox:
        assert sandbox.files.read("/data/note") == "first"
    with pytest.raises(NotFound):
        Volume.rollback("data", "before", **where)
    Volume.delete("data", **where)
    assert {path.name[:2] for path in (server.data / "pool" / "volumes").iterdir()} == {".e", "vo"}


def test_the_asynchronous_flavour(data: VolumeFiles, server: Server) -> None:
    async def use() -> None:
        async with AsyncVolume.files("data", url=server.url, api_key=server.key) as files:
            await files.write("/a", "1")
            assert [view.name for view in await files.list()] == ["a"]
        kept = await AsyncVolume.snapshot("data", url=server.url, api_key=server.key)
        assert kept.volume.startswith("vo")

    anyio.run(use)
    assert data.read("/a") == "1"


def test_the_command_line(data: VolumeFiles, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATOLL_URL", server.url)
    monkeypatch.setenv("ATOLL_API_KEY", server.key)

    def atoll(*words: str, stdin: bytes = b"") -> str:
        done = CliRunner().invoke(volume, words, input=stdin, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.stdout

    (tmp_path / "local").write_text("from a file\n")
    atoll("write", "data:/in/stdin.txt", stdin=b"from a pipe\n")
    atoll("write", "data:/in/file.txt", str(tmp_path / "local"), "--mode", "600")
    assert atoll("read", "data:/in/stdin.txt") == "from a pipe\n"
    atoll("read", "data:in/file.txt", "-o", str(tmp_path / "back"))
    assert (tmp_path / "back").read_text() == "from a file\n"
    assert json.loads(atoll("stat", "data:/in/file.txt"))["mode"] == 0o600
    atoll("mkdir", "data:/out")
    atoll("mv", "data:/in/file.txt", "/out/moved.txt")
    listed = atoll("ls", "data:/", "--depth", "2")
    assert [line.split()[-1] for line in listed.splitlines()[1:]] == ["/in", "/in/stdin.txt", "/out", "/out/moved.txt"]
    snapshot = atoll("snapshot", "data", "--name", "kept").strip()
    atoll("rm", "-r", "data:/out")
    assert json.loads(atoll("snapshots", "data", "--json"))[0]["id"] == snapshot
    atoll("create", "other", "--from", "data", "--snapshot", "kept")
    assert "/out" in atoll("ls", "other")
    assert atoll("rollback", "data", "kept").strip() == snapshot
    assert atoll("read", "data:/out/moved.txt") == "from a file\n"
    atoll("snapshot-rm", "data", "kept")
    assert "other" in atoll("ls")
    atoll("rm", "other", "data")


def test_what_a_killed_server_left_is_gone_after_the_next_start(make_server: Callable[..., Server]) -> None:
    """A copy that was to be gone back to, and a snapshot and a volume that were not yet on record."""
    server = make_server(ATOLL_WARM_SIZE="0")
    where = {"url": server.url, "api_key": server.key}
    made = Volume.create("data", **where)
    with Volume.files("data", **where) as files:
        files.write("/note", "kept")
    kept = Volume.snapshot("data", **where)
    server.kill()
    pool = server.data / "pool" / "volumes"
    for stray in (".rollback-0", "vs" + "0" * 36, "vo" + "0" * 36):
        btrfs.snapshot_create(pool / kept.id, pool / stray)
    server.start()
    assert {path.name for path in pool.iterdir()} == {".empty", made.id, kept.id}
    Volume.rollback("data", kept.id, url=server.url, api_key=server.key)
    with Volume.files("data", url=server.url, api_key=server.key) as files:
        assert files.read("/note") == "kept"
