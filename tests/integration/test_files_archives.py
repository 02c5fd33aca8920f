"""Archives and folders between this machine and real sandboxes, and what hostile ones can not do."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from atoll import AtollError, Sandbox
from atoll.model import limits
from atoll.testing.server import Server

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def sandbox(server: Server) -> Iterator[Sandbox]:
    with server.create("base", disk="64MiB", timeout_s=600) as sandbox:
        yield sandbox


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    (root / "sub/empty").mkdir(parents=True)
    (root / "sub/file").write_bytes(os.urandom(700_001))
    (root / "sub/file").chmod(0o750)
    (root / "link").symlink_to("sub/file")
    (root / os.fsdecode(b"\xff name\n")).write_text("odd")
    (root / ("long" * 50)).write_text("long")
    return root


def shape(root: Path) -> dict[str, object]:
    return {
        os.path.relpath(path, root): path.readlink() if path.is_symlink() else path.is_dir() or path.read_bytes()
        for path in root.rglob("*")
    }


@pytest.mark.parametrize("user", ["user", "root"])
def test_a_folder_goes_in_and_out(sandbox: Sandbox, tree: Path, tmp_path: Path, user: str) -> None:
    told: list[int] = []
    (tree / "out").symlink_to("/etc/passwd")
    os.mkfifo(tree / "pipe")
    pushed = sandbox.files.push(tree, f"/tmp/in-{user}", user=user, on_progress=lambda done, _: told.append(done))
    assert (pushed.entries, sorted(pushed.skipped)) == (6, ["out", "pipe"])
    assert told[-1] == pushed.bytes
    (tree / "out").unlink()
    (tree / "pipe").unlink()
    assert sandbox.files.stat(f"/tmp/in-{user}/sub/file", user=user).owner == user
    sandbox.files.symlink(f"/tmp/in-{user}/away", "/etc", user=user)
    pulled = sandbox.files.pull(f"/tmp/in-{user}", tmp_path / "copy", user=user)
    assert (pulled.entries, pulled.bytes, pulled.skipped) == (6, pushed.bytes, ("away",))
    assert shape(tmp_path / "copy") == shape(tree)
    assert (tmp_path / "copy/sub/file").stat().st_mode & 0o777 == 0o750


@pytest.mark.parametrize("kind", ["tar", "tar.gz", "zip"])
def test_archives_of_every_kind(sandbox: Sandbox, tmp_path: Path, kind: str) -> None:
    sandbox.files.write_many({f"/tmp/{kind}/a": "a" * 9000, f"/tmp/{kind}/b/c": "c", f"/tmp/{kind}/d": "d"})
    archive = b"".join(sandbox.files.pack(f"/tmp/{kind}", format=kind, names=("a", "b")))
    unpacked = sandbox.files.unpack(archive, f"/tmp/{kind}-copy", format=kind)
    assert unpacked.bytes == 9001
    assert [view.name for view in sandbox.files.find(f"/tmp/{kind}-copy", type="file")] == ["a", "c"]
    (tmp_path / "x").write_bytes(archive)
    lister = ["unzip", "-l"] if kind == "zip" else ["tar", "tf"]
    if kind == "zip":
        assert sorted(zipfile.ZipFile(tmp_path / "x").namelist()) == ["a", "b/", "b/c"]
    else:
        done = subprocess.run([*lister, tmp_path / "x"], capture_output=True, text=True, check=True)
        assert done.stdout.split() == ["a", "b/", "b/c"]


def tar_of(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        entry = tarfile.TarInfo(name)
        entry.type, entry.linkname, entry.size = kind, target, 1 if kind == tarfile.REGTYPE else 0
        archive.addfile(entry, io.BytesIO(b"x"))
    return buffer.getvalue()


@pytest.mark.parametrize(
    "archive",
    [
        tar_of("../out"),
        tar_of("/tmp/out"),
        tar_of("l", tarfile.SYMTYPE, "/etc"),
        tar_of("h", tarfile.LNKTYPE, "../../etc/passwd"),
        tar_of("dev", tarfile.CHRTYPE),
    ],
)
def test_nothing_of_an_archive_leaves_its_folder(sandbox: Sandbox, archive: bytes) -> None:
    with pytest.raises(AtollError) as caught:
        sandbox.files.unpack(archive, "/tmp/hostile", user="root")
    assert caught.value.code == "unsafe_archive"
    assert not sandbox.files.exists("/tmp/out")


def test_set_user_bits_do_not_come_in(sandbox: Sandbox) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        entry = tarfile.TarInfo("program")
        entry.mode = 0o6755
        archive.addfile(entry)
    sandbox.files.unpack(buffer.getvalue(), "/tmp/bits", user="root")
    assert sandbox.files.stat("/tmp/bits/program").mode == 0o755


@pytest.mark.parametrize("bytes_max", [limits.MIB, None])
def test_a_bomb_is_cut_off(sandbox: Sandbox, bytes_max: int | None) -> None:
    """By its bound where one is given, else by the quota of the disk; the sandbox lives on."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", bytes(200 * limits.MIB))
    with pytest.raises(AtollError) as caught:
        sandbox.files.unpack(buffer.getvalue(), "/var/tmp/bomb", format="zip", bytes_max=bytes_max)
    assert caught.value.code == "too_large" if bytes_max else caught.value.code in ("quota", "disk_full")
    sandbox.files.remove("/var/tmp/bomb", recursive=True)
    assert sandbox.commands.run("echo alive").stdout == "alive\n"


@pytest.mark.parametrize("kind", ["tar", "tar.gz", "zip"])
def test_garbage_is_no_archive(sandbox: Sandbox, kind: str) -> None:
    with pytest.raises(AtollError) as caught:
        sandbox.files.unpack(os.urandom(5000), "/tmp/garbage", format=kind)
    assert caught.value.code == "invalid_argument"
    with pytest.raises(AtollError) as caught:
        list(sandbox.files.pack("/no/such", format=kind))
    assert caught.value.code == "not_found"
