"""Large uploads go straight to the sandbox's disk, and to whoever is inside it makes no difference."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest

from atoll import AtollError, Sandbox
from atoll.model import limits
from atoll.testing.server import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.real

SIZE = limits.INCOMING_BYTES_MIN + 5
DATA = os.urandom(1000) * (SIZE // 1000) + b"x" * (SIZE % 1000)
INSIDE = "/.atoll/incoming"


@pytest.fixture(scope="module")
def sandbox(server: Server) -> Iterator[Sandbox]:
    with server.create("base", timeout_s=600) as sandbox:
        yield sandbox


def folder(server: Server, sandbox: Sandbox) -> Path:
    """Where uploads come in, on the host."""
    return server.data / "pool/sandboxes" / server.box_of(sandbox.id) / INSIDE.lstrip("/")


def shell(sandbox: Sandbox, line: str, user: str = "root") -> str:
    return sandbox.commands.run(line, user=user, check=True).stdout.strip()


def received_bytes(sandbox: Sandbox) -> int:
    """What has come in by the sandbox's network."""
    found = re.search(r"eth0:\s*(\d+)", shell(sandbox, "cat /proc/net/dev"))
    assert found is not None
    return int(found[1])


def check(sandbox: Sandbox, path: str, is_as: str, user: str = "root") -> None:
    assert shell(sandbox, f"stat -c '%U %G %a %s' {path}", user) == f"{is_as} {SIZE}"
    assert sandbox.files.read_bytes(path, user=user) == DATA


def test_it_does_not_come_by_the_network(sandbox: Sandbox, server: Server) -> None:
    before = received_bytes(sandbox)
    assert sandbox.files.write("a/b/large", DATA).size == SIZE
    assert received_bytes(sandbox) - before < SIZE / 4
    check(sandbox, "/home/user/a/b/large", "user user 644")
    assert os.listdir(folder(server, sandbox)) == []


def test_a_file_that_was_there_keeps_owner_and_rights(sandbox: Sandbox) -> None:
    shell(sandbox, "echo old > /home/user/kept; chown user:user /home/user/kept; chmod 640 /home/user/kept")
    sandbox.files.write("/home/user/kept", DATA)
    check(sandbox, "/home/user/kept", "user user 640")
    sandbox.files.write("/home/user/kept", DATA, user="root")
    check(sandbox, "/home/user/kept", "user user 640")
    sandbox.files.write("/home/user/kept", DATA, mode=0o755)
    check(sandbox, "/home/user/kept", "user user 755")


def test_it_is_seen_by_a_kernel_that_knows_the_folder_by_heart(sandbox: Sandbox) -> None:
    """Root may list everything, and the sandbox's kernel remembers what a folder held."""
    shell(sandbox, f"find {INSIDE} > /dev/null; ls -la {INSIDE}")
    sandbox.files.write("listed", DATA)
    check(sandbox, "/home/user/listed", "user user 644")


def test_a_link_stays_a_link(sandbox: Sandbox) -> None:
    shell(sandbox, "echo old > target; ln -sf target link", "user")
    sandbox.files.write("link", DATA)
    assert shell(sandbox, "readlink link", "user") == "target"
    check(sandbox, "/home/user/target", "user user 644")


@pytest.mark.parametrize(
    ("path", "code"), [("/etc/large", "permission_denied"), ("/home/user", "is_directory"), ("/etc/hosts/x", "")]
)
def test_what_may_not_be_written_is_refused(sandbox: Sandbox, server: Server, path: str, code: str) -> None:
    with pytest.raises(AtollError) as large:
        sandbox.files.write(path, DATA)
    with pytest.raises(AtollError) as small:
        sandbox.files.write(path, b"x")
    assert (large.value.code, str(large.value)) == (small.value.code, str(small.value))
    assert code in large.value.code
    assert os.listdir(folder(server, sandbox)) == []


def test_other_filesystems_and_mounts_get_it_too(sandbox: Sandbox) -> None:
    shell(sandbox, "mkdir -p /mnt/memory /mnt/same /home/user/real; chown user /home/user/real")
    shell(sandbox, "mount -t tmpfs none /mnt/memory; chmod 777 /mnt/memory; mount --bind /home/user/real /mnt/same")
    try:
        for path in ("/mnt/memory/large", "/mnt/same/large"):
            sandbox.files.write(path, DATA)
            check(sandbox, path, "user user 644")
    finally:
        shell(sandbox, "umount /mnt/memory /mnt/same")


def test_a_folder_gives_its_group_as_ever(sandbox: Sandbox) -> None:
    shell(sandbox, "mkdir -p shared; chgrp games shared; chmod 2777 shared")
    sandbox.files.write("/root/shared/large", DATA, user="root")
    check(sandbox, "/root/shared/large", "root games 644")


def test_nobody_inside_sees_what_is_on_its_way(sandbox: Sandbox, server: Server) -> None:
    """Not even root, whose look the sandbox's kernel would remember: a file that seems shorter than it is."""
    looks: list[str] = []

    def look() -> None:
        looks.append(shell(sandbox, f"find {INSIDE} -ls"))
        assert sandbox.commands.run(f"ls {INSIDE}", user="games").exit_code != 0

    assert put(server, sandbox, look).is_success
    assert len(looks[0].splitlines()) == 1
    check(sandbox, "/home/user/half", "user user 644")
    sandbox.files.remove("half")


def test_a_folder_that_leads_elsewhere_is_not_used(server: Server) -> None:
    with server.create("base") as sandbox:
        shell(sandbox, f"mkdir /root/trap; chmod 1733 /root/trap; rmdir {INSIDE}; ln -s /root/trap {INSIDE}")
        sandbox.files.write("large", DATA)
        check(sandbox, "/home/user/large", "user user 644")
        shell(sandbox, f"rm {INSIDE}; ln -s / {INSIDE}")
        sandbox.files.write("large", DATA, user="root")
        assert not list(Path("/").glob(".atoll-*"))


def test_a_full_disk_leaves_the_old_file(server: Server) -> None:
    with server.create("base", disk="64MiB") as sandbox:
        sandbox.files.write("file", "old")
        with pytest.raises(AtollError) as refused:
            sandbox.files.write("file", bytes(100 * limits.MIB))
        assert refused.value.code in ("quota", "disk_full")
        assert sandbox.files.read("file") == "old"
        assert os.listdir(folder(server, sandbox)) == []
        sandbox.files.write("file", DATA)  # and there is room again


def written_bytes(server: Server) -> int:
    """Of files that the server has open in such a folder and that have no name."""
    total = 0
    for fd in Path(f"/proc/{server.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if f"{INSIDE}/#" in os.readlink(fd):
                total += fd.stat().st_size
    return total


def body(server: Server, then: Callable[[], None]) -> Iterator[bytes]:
    """An upload that does something in its middle, when some of it lies on the disk."""
    half = SIZE // 2
    yield DATA[:half]
    wait_until(lambda: written_bytes(server) > 0, 10, "it is on its way")
    then()
    yield DATA[half:]


def put(server: Server, sandbox: Sandbox, then: Callable[[], None]) -> httpx2.Response:
    headers = {"content-length": str(SIZE), "content-type": "application/octet-stream"}
    path = f"/v1/sandboxes/{sandbox.id}/files/content?path=half"
    return server.request("PUT", path, content=body(server, then), headers=headers)


def test_it_may_come_in_the_smallest_pieces(sandbox: Sandbox, server: Server) -> None:
    headers = {"content-length": str(SIZE), "content-type": "application/octet-stream"}
    pieces = (DATA[start : start + 997] for start in range(0, SIZE, 997))
    path = f"/v1/sandboxes/{sandbox.id}/files/content?path=pieces"
    assert server.request("PUT", path, content=pieces, headers=headers).is_success
    check(sandbox, "/home/user/pieces", "user user 644")


def test_a_caller_who_leaves_leaves_nothing(sandbox: Sandbox, server: Server) -> None:
    class Left(Exception):
        pass

    def leave() -> None:
        raise Left

    with pytest.raises(Left):
        put(server, sandbox, leave)
    wait_until(lambda: not written_bytes(server), 10, "it is gone")
    assert os.listdir(folder(server, sandbox)) == []
    assert not sandbox.files.exists("half")


def test_a_snapshot_in_the_middle_has_no_half_of_it(server: Server) -> None:
    with server.create("base") as sandbox:
        snapshots = []
        assert put(server, sandbox, lambda: snapshots.append(sandbox.snapshot())).is_success
        check(sandbox, "/home/user/half", "user user 644")
        with server.create(snapshots[0].id) as copy:
            assert os.listdir(folder(server, copy)) == []
            assert not copy.files.exists("half")
            before = received_bytes(copy)
            copy.files.write("half", DATA)
            assert received_bytes(copy) - before < SIZE / 4
            check(copy, "/home/user/half", "user user 644")


def test_a_killed_server_leaves_nothing(make_server: Callable[..., Server]) -> None:
    server = make_server()
    sandbox = server.create("base")
    place = folder(server, sandbox)
    with pytest.raises(httpx2.TransportError):
        put(server, sandbox, server.kill)
    assert os.listdir(place) == []
    server.start()
    again = server.connect(sandbox.id)
    assert not again.files.exists("half")
    again.files.write("half", DATA)
    check(again, "/home/user/half", "user user 644")
