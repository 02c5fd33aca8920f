"""Snapshots as files, between two real servers: carried whole or refused, and never half there."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import msgspec
import pytest
from backports import zstd

from atoll import AsyncSnapshot, Sandbox, Snapshot
from atoll.cli.main import main as cli
from atoll.client import SnapshotView
from atoll.model import limits
from atoll.model.errors import AtollError, Forbidden
from atoll.node.disks.pool import Pool
from atoll.node.install import template_build, workplace
from atoll.node.install.layout import Layout
from atoll.node.snapshotfile import container, items
from atoll.node.snapshotfile.items import Extent, File, Folder, Head
from atoll.node.snapshotfile.signing import Signing
from atoll.testing.server import Server
from tests import lean
from tests.waiting import wait_until

pytestmark = pytest.mark.real

LOOP = "i=0; while true; do i=$((i+1)); echo $i > next; mv next count; sleep 0.02; done"
FILL = """
echo secret > kept; chmod 640 kept; chown 12:34 kept; ln kept again; ln -s /etc/passwd link
printf x | dd of=sparse bs=1 seek=50000000 2>/dev/null; cp /bin/busybox prog; chmod 4755 prog
head -c 200000000 /dev/zero > zeros; mkdir -p folder/deeper; echo deep > folder/deeper/file; touch -d 2001-02-03 folder
"""
LOOK = """
stat -c '%n %u %g %a %Y %s %h' kept again prog sparse zeros link; stat -c '%n %u %g %a %Y' folder folder/deeper
cat kept folder/deeper/file; readlink link; md5sum prog sparse; stat -c '%i' kept again
"""


@dataclass(frozen=True)
class Pair:
    """Two servers; `there` trusts `here`, and not the other way round."""

    here: Server
    there: Server


def own(server: Server) -> dict[str, Any]:
    return {"url": server.url, "api_key": server.key}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def pair(layout: Layout, make_data_dir: Callable[[], Path]) -> Iterator[Pair]:
    here = Server(make_data_dir(), {})
    here.start()
    with workplace.turn(layout.cache, print):
        template_build.ensure("busybox", layout, Pool.open(here.data), print)
    lean.template_add(here.data)
    there = Server(make_data_dir(), {"ATOLL_SNAPSHOT_TRUST": (here.data / "export.pub").read_text()})
    there.start()
    yield Pair(here, there)
    here.close()
    there.close()


@pytest.fixture(scope="module")
def small(pair: Pair, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a snapshot with memory of a sandbox that has nearly nothing."""
    with pair.here.create("busybox", timeout_s=600) as sandbox:
        snapshot = sandbox.snapshot()
    file = tmp_path_factory.mktemp("small") / "small.atoll"
    Snapshot.export(snapshot, file, **own(pair.here))
    Snapshot.delete(snapshot, **own(pair.here))
    return file


def snapshots(server: Server) -> list[SnapshotView]:
    return list(Snapshot.list(**own(server)))


def nothing_left(server: Server) -> None:
    assert snapshots(server) == []
    wait_until(lambda: not list((server.data / "pool/snapshots").iterdir()), 30, "no disk")
    wait_until(lambda: not list((server.data / "images").iterdir()), 30, "no folder")


def peak_mib(server: Server) -> int:
    status = Path(f"/proc/{server.pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) // 1024


def test_a_disk_is_carried_as_it_is(pair: Pair, tmp_path: Path) -> None:
    """Through the command line. Owners, rights, times, links and holes are kept; neither side holds it in memory."""
    before = peak_mib(pair.here), peak_mib(pair.there)
    with pair.here.create("busybox", timeout_s=600, env={"KEPT": "yes"}) as sandbox:
        sandbox.commands.run(["mkdir", "-p", "/home"], user="root")
        sandbox.commands.run(FILL, user="root", cwd="/home", check=True)
        seen = look(sandbox)
        snapshot = sandbox.snapshot("mine", memory=False)
        file = tmp_path / "mine.atoll"
        run_cli(pair.here, "snapshot", "export", "mine", str(file))
        assert snapshots(pair.here) == [snapshot], "the source is as it was"
        assert look(sandbox) == seen
    assert file.stat().st_size < 20_000_000, "it is compressed"
    run_cli(pair.there, "snapshot", "import", str(file), "--name", "theirs")
    (found,) = snapshots(pair.there)
    assert (found.name, found.sandbox_id, found.template, found.has_memory) == ("theirs", "", "busybox", False)
    assert found.resources == snapshot.resources
    with pair.there.create("theirs", timeout_s=600) as again:
        assert look(again) == seen
        assert again.commands.run("echo $KEPT", user="root").stdout == "yes\n"
        disk = pair.there.data / "pool/sandboxes" / pair.there.box_of(again.id) / "home"
        assert (disk / "sparse").stat().st_blocks * 512 < 1_000_000, "holes are still holes"
        assert (disk / "prog").stat().st_mode & 0o7777 == 0o4755
        assert again.snapshot(memory=False).sandbox_id == again.id, "it is a sandbox like any other"
    grown = peak_mib(pair.here) - before[0], peak_mib(pair.there) - before[1]
    assert max(grown) < 150, f"200 MB went through, and took {grown} MiB of memory"
    for server in (pair.here, pair.there):
        for view in snapshots(server):
            Snapshot.delete(view, **own(server))
        nothing_left(server)


def look(sandbox: Sandbox) -> list[str]:
    shown = sandbox.commands.run(LOOK, user="root", cwd="/home").stdout
    *lines, first, second = shown.splitlines()
    assert first == second, "two names of one file"
    return lines


def run_cli(server: Server, *arguments: str) -> None:
    old = {name: os.environ.get(name) for name in ("ATOLL_URL", "ATOLL_API_KEY")}
    os.environ |= {"ATOLL_URL": server.url, "ATOLL_API_KEY": server.key}
    try:
        with pytest.raises(SystemExit) as ended:
            cli(list(arguments))
        assert ended.value.code in (0, None)
    finally:
        for name, value in old.items():
            os.environ.pop(name, None) if value is None else os.environ.__setitem__(name, value)


def test_what_lives_goes_on_at_another_server(pair: Pair, tmp_path: Path) -> None:
    """A variable of an interpreter, a shell's loop and a half-read file; in the copy and in what it was copied from."""
    file = tmp_path / "live.atoll"
    with pair.here.create(lean.NAME, timeout_s=600, env={"KEPT": "yes"}) as sandbox:
        sandbox.files.write("lines", "".join(f"line {n}\n" for n in range(1000)))
        assert sandbox.code.run("x = {'frame': [1, 2]}; f = open('/home/user/lines'); _ = f.readline()").error is None
        sandbox.commands.start(LOOP)
        wait_until(lambda: sandbox.files.exists("count"), 30)
        snapshot = sandbox.snapshot()
        Snapshot.export(snapshot, file, **own(pair.here))
        goes_on(sandbox)
        there = Snapshot.import_(file, **own(pair.there))
        assert (there.has_memory, there.memory_bytes) == (True, snapshot.memory_bytes)
        with pair.there.create(there.id, timeout_s=600) as again:
            assert again.code.run("x, f.readline()").text == "({'frame': [1, 2]}, 'line 1\\n')"
            goes_on(again)
            assert again.commands.run("echo $KEPT").stdout == "yes\n"
        assert sandbox.code.run("x, f.readline()").text == "({'frame': [1, 2]}, 'line 1\\n')"
    refused_without_trust(pair, there, tmp_path)
    Snapshot.delete(snapshot, **own(pair.here))
    Snapshot.delete(there, **own(pair.there))
    nothing_left(pair.there)


def refused_without_trust(pair: Pair, snapshot: SnapshotView, tmp_path: Path) -> None:
    file = tmp_path / "back.atoll"
    Snapshot.export(snapshot, file, **own(pair.there))
    with pytest.raises(Forbidden) as caught:
        Snapshot.import_(file, **own(pair.here))
    assert caught.value.code == "snapshot_untrusted"
    assert (pair.there.data / "export.pub").read_text().strip() in caught.value.message
    assert len(snapshots(pair.here)) == 1


def goes_on(sandbox: Sandbox) -> None:
    first = int(sandbox.files.read("count") or 0)
    wait_until(lambda: int(sandbox.files.read("count") or 0) > first, 30, "the loop goes on")


def test_the_disk_of_a_stranger_is_taken_without_its_memory(pair: Pair, small: Path) -> None:
    stranger = bytearray(small.read_bytes())
    stranger[10:42] = b"s" * 32
    told = bytes(stranger[:-96])
    forged = small.with_name("forged")
    forged.write_bytes(told + hashlib.sha256(told).digest() + bytes(64))
    with pytest.raises(Forbidden):
        Snapshot.import_(forged, **own(pair.there))
    nothing_left(pair.there)
    found = Snapshot.import_(forged, memory=False, expires_s=3600, **own(pair.there))
    assert (found.has_memory, found.expires_at is None) == (False, False)
    Snapshot.delete(found, **own(pair.there))


@pytest.mark.anyio
async def test_the_same_with_await_and_progress(pair: Pair, small: Path, tmp_path: Path) -> None:
    seen: list[int] = []
    found = await AsyncSnapshot.import_(small, on_progress=lambda done, _total: seen.append(done), **own(pair.there))
    assert seen[-1] == small.stat().st_size
    again = tmp_path / "again"
    size_bytes = await AsyncSnapshot.export(found, again, memory=False, **own(pair.there))
    assert again.stat().st_size == size_bytes < small.stat().st_size
    await AsyncSnapshot.delete(found, **own(pair.there))


def test_whoever_signs_for_another_is_refused(pair: Pair, small: Path) -> None:
    """The name at the beginning is that of somebody who is trusted; the signature is not."""
    forged = small.with_name("signed")
    forged.write_bytes(small.read_bytes()[:-64] + bytes(64))
    with pytest.raises(Forbidden) as caught:
        Snapshot.import_(forged, **own(pair.there))
    assert caught.value.code == "snapshot_untrusted"
    nothing_left(pair.there)


def damages(data: bytes) -> dict[str, tuple[bytes, str]]:
    blocks, position = [], 42
    while length := int.from_bytes(data[position : position + 4], "big"):
        blocks.append(data[position : position + 4 + length])
        position += 4 + length
    reordered = [*blocks[:1], blocks[2], blocks[1], *blocks[3:]]
    middle = len(data) // 2
    bomb = zstd.compress(bytes(64 * limits.MIB))
    return {
        "cut short": (data[:-1], "snapshot_damaged"),
        "cut in the middle": (data[:middle], "snapshot_damaged"),
        "empty": (b"", "snapshot_damaged"),
        "one bit": (data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :], "snapshot_damaged"),
        "one bit of the seal": (data[:-80] + bytes([data[-80] ^ 1]) + data[-79:], "snapshot_damaged"),
        "reordered": (data[:42] + b"".join(reordered) + data[position:], "snapshot_damaged"),
        "longer": (data + b"x", "snapshot_damaged"),
        "foreign": (b"PK\x03\x04" + data, "snapshot_foreign"),
        "newer": (data[:8] + b"\x00\x63" + data[10:], "snapshot_version"),
        "a bomb": (data[:42] + len(bomb).to_bytes(4, "big") + bomb + data[position:], "snapshot_damaged"),
    }


def test_a_damaged_or_foreign_file_is_refused_with_a_code(pair: Pair, small: Path) -> None:
    file = small.with_name("damaged")
    for what, (data, code) in damages(small.read_bytes()).items():
        file.write_bytes(data)
        with pytest.raises(AtollError) as caught:
            Snapshot.import_(file, **own(pair.there))
        assert caught.value.code == code, what
        nothing_left(pair.there)
    assert Snapshot.import_(small, **own(pair.there)).has_memory, "and the whole one is taken"
    for view in snapshots(pair.there):
        Snapshot.delete(view, **own(pair.there))


def forge(server: Server, *parts: bytes) -> bytes:
    """A file that is whole and signed by this server, whatever is in it."""
    signing = Signing.open(server.data)
    writer = container.Writer(signing.public)
    return writer.begin() + b"".join(map(writer.add, parts)) + writer.end(signing.sign)


def head_of(file: Path) -> Head:
    reader = items.Reader()
    for block in container.Reader().feed(file.read_bytes()):
        for _ in reader.feed(block):
            assert reader.head is not None
            return reader.head
    raise AssertionError("it has no head")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"runtime_version": "runsc of old"}, "runtime runsc of old"),
        ({"cpu_features": "others"}, "processor"),
        ({"guest": "0" * 16}, "another version of Atoll"),
        ({"interpreter": "another"}, "another version of Atoll"),
        ({"machine": "pdp11"}, "pdp11"),
    ],
)
def test_what_does_not_fit_here_is_refused_with_the_reason(
    pair: Pair, small: Path, changes: dict[str, Any], reason: str
) -> None:
    forged = small.with_name("forged")
    forged.write_bytes(forge(pair.here, items.encode(msgspec.structs.replace(head_of(small), **changes))))
    with pytest.raises(AtollError) as caught:
        Snapshot.import_(forged, **own(pair.here))
    assert caught.value.code == "image_mismatch"
    assert reason in caught.value.message
    nothing_left(pair.here)


def test_a_file_without_end_stops_at_the_bounds(pair: Pair, small: Path) -> None:
    """Correctly signed, and still refused: more than the machine has, deeper than a tree may be, no name at all."""
    file = small.with_name("endless")
    head = items.encode(msgspec.structs.replace(head_of(small), memory=()))
    deep = [items.encode(Folder(b"d", 0o755, 0, 0, 1, {}))] * 300
    root = items.encode(Folder(b"", 0o755, 0, 0, 1, {}))
    huge = [items.encode(File(b"f", 0o644, 0, 0, 1, {}, 2**43)), items.encode(Extent(0, 2**42))]
    for parts, code in (
        ([root, *deep], "snapshot_unsafe"),
        ([root, *huge], "snapshot_too_large"),
        ([root, items.encode(File(b"../up", 0o644, 0, 0, 1, {}, 0))], "snapshot_unsafe"),
    ):
        file.write_bytes(forge(pair.here, head, *parts))
        with pytest.raises(AtollError) as caught:
            Snapshot.import_(file, **own(pair.here))
        assert caught.value.code == code
    nothing_left(pair.here)


def test_a_snapshot_can_be_deleted_while_somebody_reads_it(pair: Pair, tmp_path: Path) -> None:
    """Who deletes it does not wait for who reads slowly, and the reader gets all of it."""
    with pair.here.create("busybox", timeout_s=600) as sandbox:
        sandbox.commands.run("head -c 30000000 /dev/urandom > /large", user="root", check=True)
        snapshot = sandbox.snapshot(memory=False)
    address = f"{pair.here.url}/v1/snapshots/{snapshot.id}/export"
    headers = {"authorization": f"Bearer {pair.here.key}"}
    file = tmp_path / "slowly"
    with httpx2.stream("GET", address, headers=headers, timeout=60, trust_env=False) as response:
        pieces = response.iter_raw()
        first = next(pieces)
        Snapshot.delete(snapshot, **own(pair.here))
        assert snapshots(pair.here) == []
        file.write_bytes(first + b"".join(pieces))
    nothing_left(pair.here)
    Snapshot.delete(Snapshot.import_(file, **own(pair.there)), **own(pair.there))


def test_a_caller_who_hangs_up_leaves_nothing(pair: Pair, small: Path) -> None:
    with half_sent(pair.there, small.read_bytes()):
        wait_until(lambda: list((pair.there.data / "pool/snapshots").iterdir()), 30, "some of it is there")
        assert snapshots(pair.there) == [], "and nobody sees it"
    nothing_left(pair.there)


def test_a_kill_in_the_middle_leaves_nothing(make_server: Callable[..., Server], small: Path) -> None:
    server = make_server()
    with half_sent(server, small.read_bytes()):
        wait_until(lambda: list((server.data / "pool/snapshots").iterdir()), 30, "some of it is there")
        server.kill()
    server.start()
    nothing_left(server)
    assert Snapshot.import_(small, memory=False, **own(server)) in snapshots(server), "and the next one is taken"


def half_sent(server: Server, data: bytes) -> socket.socket:
    """A connection on which half of a file has been sent."""
    address = urlsplit(server.url)
    connection = socket.create_connection((address.hostname or "", address.port or 0))
    request = f"POST /v1/snapshots?memory=false HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {server.key}\r\n"
    request += f"content-type: application/octet-stream\r\ncontent-length: {len(data)}\r\n\r\n"
    connection.sendall(request.encode() + data[: len(data) // 2])
    return connection
