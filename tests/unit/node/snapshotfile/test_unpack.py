"""A tree is carried as it is, and nothing that a file says leads out of the folder that it is unpacked into."""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Iterable
from pathlib import Path

import pytest

from atoll.model.errors import AtollError
from atoll.node.snapshotfile import items, pack
from atoll.node.snapshotfile.items import Extent, File, Folder, Hardlink, Head, Item, Symlink, Up
from atoll.node.snapshotfile.unpack import Unpacker

pytestmark = pytest.mark.real  # owners can be given by root only

HEAD = Head("base", 1.0, 2**30, 2**30, 100, "x86_64", "runsc 1", "cpu")
ROOT = Folder(b"", 0o755, 0, 0, 1, {})


def file(name: bytes, mode: int = 0o644, size: int = 0, xattrs: dict[bytes, bytes] | None = None) -> File:
    return File(name, mode, 0, 0, 1, xattrs or {}, size)


def unpack(data: Iterable[bytes], target: Path, memory: Path | None = None) -> None:
    reader, unpacker = items.Reader(), Unpacker(target, memory)
    try:
        for part in data:
            for item in reader.feed(part):
                unpacker.take(item)
        reader.finish()
    finally:
        unpacker.close()


def described(folder: Path) -> dict[str, tuple[object, ...]]:
    """All that a program could see of a tree."""
    found: dict[str, tuple[object, ...]] = {}
    for path in [folder, *sorted(folder.rglob("*"))]:
        status = path.lstat()
        content: object = None
        if path.is_symlink():
            content = os.readlink(path)
        elif path.is_file():
            content = (path.read_bytes(), status.st_blocks * 512 < status.st_size, dict_of(path))
        name = str(path.relative_to(folder)) if path != folder else "."
        found[name] = (status.st_mode, status.st_uid, status.st_gid, status.st_mtime_ns, content)
    return found


def dict_of(path: Path) -> dict[str, bytes]:
    return {name: os.getxattr(path, name) for name in os.listxattr(path)}


def fill(source: Path) -> None:
    (source / "folder/deeper").mkdir(parents=True)
    plain = source / "folder/plain"
    plain.write_bytes(os.urandom(700_000))
    os.setxattr(plain, "user.note", b"kept")
    os.chown(plain, 1000, 1001)
    plain.chmod(0o640)
    os.link(plain, source / "folder/deeper/again")
    os.link(plain, source / "also")
    program = source / "program"
    program.write_bytes(b"#!/bin/sh\n")
    program.chmod(0o4755)
    os.setxattr(program, "security.capability", bytes.fromhex("0100000200200000000000000000000000000000"))
    with open(source / "sparse", "wb") as sparse:
        sparse.seek(5 << 20)
        sparse.write(b"end")
        sparse.truncate(9 << 20)
    (source / "empty").touch()
    (source / os.fsdecode(b"not \xff utf-8")).write_text("x")
    (source / "link").symlink_to("/etc/passwd")
    os.mkfifo(source / "pipe", 0o620)
    (source / "folder").chmod(0o2775)
    os.utime(source / "link", ns=(1, 123_456_789), follow_symlinks=False)
    os.utime(source / "folder", ns=(5, 987_654_321_012_345_678))


def test_a_tree_comes_back_as_it_was(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    target.mkdir()
    fill(source)
    unpack(pack.packed(HEAD, source, tmp_path), target)
    assert described(target) == described(source)
    inodes = {(target / name).stat().st_ino for name in ("also", "folder/plain", "folder/deeper/again")}
    assert len(inodes) == 1, "the three names are one file"


def test_devices_and_sockets_do_not_travel(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    target.mkdir()
    os.mknod(source / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(source / "socket"))
        unpack(pack.packed(HEAD, source, tmp_path), target)
    assert list(target.iterdir()) == []


def test_memory_is_written_only_where_it_is_wanted(tmp_path: Path) -> None:
    source, target, memory = tmp_path / "source", tmp_path / "target", tmp_path / "memory"
    for folder in (source, target, memory):
        folder.mkdir()
    (tmp_path / "m.img").write_bytes(b"m" * 300_000)
    digest = "bc" * 32
    head = Head(
        *("base", 1.0, 2**30, 2**30, 100, "x86_64", "runsc 1", "cpu"),
        *("0" * 16, "python", "token", "0" * 64),
        memory=(items.MemoryFile("m.img", 300_000, digest),),
    )
    unpack(pack.packed(head, source, tmp_path), target)
    assert list(memory.iterdir()) == []
    unpack(pack.packed(head, source, tmp_path), target, memory)
    assert (memory / "m.img").read_bytes() == b"m" * 300_000
    assert stat.S_IMODE((memory / "m.img").stat().st_mode) == 0o600


TRICKS: dict[str, list[Item]] = {
    "a name that is a path": [file(b"a/b")],
    "a way up": [file(b"..")],
    "a folder that is a way up": [Folder(b"..", 0o755, 0, 0, 1, {}), file(b"x"), Up()],
    "a link, and then a file through it": [Symlink(b"out", b"/tmp", 0, 0, 1), Folder(b"out", 0o755, 0, 0, 1, {}), Up()],
    "a link, and then a file over it": [Symlink(b"out", b"/tmp/victim", 0, 0, 1), file(b"out")],
    "a file twice": [file(b"x"), file(b"x")],
    "a hard link to outside": [Hardlink(b"x", b"../../etc/shadow")],
    "a hard link to an absolute path": [Hardlink(b"x", b"/etc/shadow")],
    "a hard link over a link": [Symlink(b"out", b"/etc", 0, 0, 1), Hardlink(b"x", b"out/shadow")],
    "a hard link to a link": [Symlink(b"out", b"/etc/shadow", 0, 0, 1), Hardlink(b"x", b"out")],
    "a hard link to a folder": [Folder(b"d", 0o755, 0, 0, 1, {}), Up(), Hardlink(b"x", b"d")],
    "a hard link to nothing": [Hardlink(b"x", b"nowhere")],
    "a device by its rights": [file(b"x", mode=stat.S_IFBLK | 0o600)],
    "an attribute of the host's": [file(b"x", xattrs={b"trusted.overlay.opaque": b"y"})],
    "a label": [file(b"x", xattrs={b"security.selinux": b"y"})],
    "an owner that is none": [File(b"x", 0o644, 2**32 - 1, 0, 1, {}, 0)],
    "a file without end": [file(b"x", size=2**62)],
    "bytes behind the end of a file": [file(b"x", size=10), Extent(4096, 10)],
}


@pytest.mark.parametrize("trick", TRICKS)
def test_no_trick_leads_out(trick: str, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    encoded = [items.encode(item) for item in (HEAD, ROOT, *TRICKS[trick], Up(), items.End())]
    with pytest.raises(AtollError) as caught:
        unpack(encoded, target)
    assert caught.value.code in ("snapshot_unsafe", "snapshot_damaged")
    assert [path.name for path in tmp_path.iterdir()] == ["target"]
    assert not os.path.lexists("/tmp/victim")


def test_folders_inside_folders_have_an_end(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    endless = [items.encode(Folder(b"d", 0o755, 0, 0, 1, {}))] * 300
    with pytest.raises(AtollError) as caught:
        unpack([items.encode(HEAD), items.encode(ROOT), *endless], tmp_path / "target")
    assert caught.value.code == "snapshot_unsafe"


def test_a_disk_that_is_full_in_the_middle_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "target").mkdir()

    def no_room(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", no_room)
    begun: list[Item] = [HEAD, ROOT, file(b"x", size=10), Extent(0, 10)]
    with pytest.raises(AtollError) as caught:
        unpack([*map(items.encode, begun), items.encode_data(b"0123456789")], tmp_path / "target")
    assert caught.value.code == "disk_pool_full"
