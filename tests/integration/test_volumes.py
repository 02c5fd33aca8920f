"""Volumes: shared, read-only, capped, cloned, and kept when sandboxes go."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

from atoll import Sandbox, Volume
from atoll.model.errors import Conflict, InvalidArgument, NotFound
from atoll.testing.server import Server

pytestmark = pytest.mark.real


@pytest.fixture
def data(server: Server) -> Iterator[str]:
    """A volume of 32 MiB by the name `data`."""
    Volume.create("data", size="32MiB", url=server.url, api_key=server.key)
    yield "data"
    with suppress(NotFound):
        Volume.delete("data", url=server.url, api_key=server.key)


def mounted(server: Server, volume: str = "data", path: str = "/data") -> Sandbox:
    return server.create(timeout_s=600, volumes={path: volume})


def test_a_volume_outlives_its_sandboxes(server: Server, data: str) -> None:
    with mounted(server) as one:
        one.files.write("/data/note", "kept")
        assert one.info().volumes[0].path == "/data"
    with mounted(server, path="/home/user/deep/er") as two:
        assert two.files.read("/home/user/deep/er/note") == "kept"


def test_two_sandboxes_share_it_and_a_reader_cannot_write(server: Server, data: str) -> None:
    with mounted(server) as writer, mounted(server, "data:ro") as reader:
        writer.files.write("/data/note", "now")
        assert reader.files.read("/data/note") == "now"
        for user in ("user", "root"):
            assert reader.commands.run("echo x > /data/note", user=user).exit_code != 0
        # Whatever root does to the mounts inside, the boundary itself is read-only.
        reader.commands.run("mount -o remount,rw,bind /data; echo x > /data/note", user="root")
        reader.commands.run("mount -o remount,rw /.atoll/slots/ro0; echo x > /.atoll/slots/ro0/note", user="root")
        assert writer.files.read("/data/note") == "now"


def test_nothing_passes_through_an_unused_slot(server: Server) -> None:
    with server.create(timeout_s=600) as one, server.create(timeout_s=600) as two:
        for slot in ("rw0", "rw3", "ro0"):
            assert one.commands.run(f"echo x > /.atoll/slots/{slot}/x", user="root").exit_code != 0
            assert two.commands.run(f"ls /.atoll/slots/{slot}", user="root").stdout == ""


def test_its_size_holds(server: Server, data: str) -> None:
    with mounted(server) as sandbox:
        full = sandbox.commands.run("head -c 60000000 /dev/urandom > /data/big")
        assert full.exit_code != 0
        assert sandbox.commands.run("head -c 60000000 /dev/urandom > big; echo $?").stdout == "0\n"
    view = Volume.get("data", url=server.url, api_key=server.key)
    assert 0 < view.used_bytes <= view.size_bytes == 32 * 1024**2


def test_it_is_there_after_pause_and_in_forks(server: Server, data: str) -> None:
    with mounted(server) as sandbox:
        sandbox.files.write("/data/note", "one")
        sandbox.pause()
        sandbox.resume()
        assert sandbox.files.read("/data/note") == "one"
        (fork,) = sandbox.fork()
        with fork:
            fork.files.write("/data/note", "two")
        assert sandbox.files.read("/data/note") == "two", "a volume is shared, not copied"


def test_a_clone_goes_its_own_way(server: Server, data: str) -> None:
    with mounted(server) as sandbox:
        sandbox.files.write("/data/note", "first")
        Volume.create("other", source="data", url=server.url, api_key=server.key)
        sandbox.files.write("/data/note", "second")
    with mounted(server, "other") as sandbox:
        assert sandbox.files.read("/data/note") == "first"
    Volume.delete("other", url=server.url, api_key=server.key)
    assert [view.name for view in Volume.list(url=server.url, api_key=server.key)] == ["data"]


def test_what_cannot_be(server: Server, data: str) -> None:
    with mounted(server) as sandbox:
        with pytest.raises(Conflict) as caught:
            Volume.delete("data", url=server.url, api_key=server.key)
        assert caught.value.code == "volume_in_use"
        sandbox.pause()
        with pytest.raises(Conflict):
            Volume.delete("data", url=server.url, api_key=server.key)
    with pytest.raises(Conflict) as caught:
        Volume.create("data", url=server.url, api_key=server.key)
    assert caught.value.code == "name_taken"
    with pytest.raises(NotFound):
        mounted(server, "nothing-like-it")
    for path in ("/", "/proc", "/etc/x", "data", "/a/../b", "/.atoll/app"):
        with pytest.raises(InvalidArgument):
            mounted(server, path=path)
    with pytest.raises(InvalidArgument):
        Volume.create("small", size=10, url=server.url, api_key=server.key)
