"""Files of a real guest: bytes in and out, names of every kind, hostile archives, and the rights of each user."""

from __future__ import annotations

import io
import os
import tarfile
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from atoll.model import errors, limits
from atoll.node.guestlink import GuestLink
from atoll.wire import guest as wire
from tests.listed import listed

pytestmark = pytest.mark.anyio


async def once(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def write(link: GuestLink, path: Path | str, data: bytes, **params: Any) -> dict[str, Any]:
    return await link.upload("file.write", {"path": str(path), **params}, once(data))


async def read(link: GuestLink, op: str, **params: Any) -> bytes:
    data = b""
    async with link.stream(op, params) as stream:
        async for message in stream:
            if isinstance(message, wire.Data):
                data += message.payload
    return data


async def test_what_is_written_is_read(link: GuestLink, tmp_path: Path) -> None:
    data = os.urandom(3 * limits.MIB + 17)
    assert (await write(link, tmp_path / "new/folder/a", data))["size"] == len(data)
    assert await read(link, "file.read", path=str(tmp_path / "new/folder/a")) == data
    assert await read(link, "file.read", path=str(tmp_path / "new/folder/a"), offset=5, length=10) == data[5:15]
    await write(link, tmp_path / "new/folder/a", b"more", append=True)
    assert (tmp_path / "new/folder/a").read_bytes() == data + b"more"
    assert os.listdir(tmp_path / "new/folder") == ["a"]


async def test_of_many_files_the_first_that_is_refused_says_how_many_were_written(
    link: GuestLink, tmp_path: Path
) -> None:
    async with link.stream("file.write_many", {}) as stream:
        for name in ("a", "b", "folder/", "c"):
            await stream.send_control({"path": f"{tmp_path}/{name}"})
            await stream.send(b"x")
        await stream.commit()
        with pytest.raises(errors.AtollError) as caught:
            await stream.receive()
    assert caught.value.code == "is_directory"
    assert caught.value.message.endswith("(2 files were written)")
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


async def test_a_replaced_file_keeps_owner_mode_and_link(link: GuestLink, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"old")
    target.chmod(0o640)
    os.chown(target, 65534, 65534)
    (tmp_path / "link").symlink_to("target")
    await write(link, tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert target.read_bytes() == b"new"
    assert target.stat().st_mode & 0o777 == 0o640
    assert target.stat().st_uid == 65534


async def test_an_upload_without_commit_changes_nothing(link: GuestLink, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    async with link.stream("file.write", {"path": str(tmp_path / "a")}) as stream:
        await stream.send(b"new")
    await read(link, "file.list", path=str(tmp_path))
    for _ in range(50):
        if os.listdir(tmp_path) == ["a"]:
            break
        await link.call("ping")
    assert (tmp_path / "a").read_bytes() == b"old"


async def test_a_wrong_size_changes_nothing(link: GuestLink, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    with pytest.raises(errors.InvalidArgument):
        await write(link, tmp_path / "a", b"new", size=4)
    assert {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)} == {"a": b"old"}


async def test_a_full_disk_leaves_the_old_file(link: GuestLink) -> None:
    with pytest.raises(errors.OutOfSpace) as caught:
        await write(link, "/dev/full", b"x" * 5000, atomic=False, parents=False)
    assert caught.value.code == "disk_full"


async def test_names_with_every_byte(link: GuestLink, tmp_path: Path) -> None:
    raw = bytes(range(1, 256)).replace(b"/", b"")
    for name in (raw[:120], raw[120:], b" ", b"-rf", b"a\nb"):
        text = os.fsdecode(name)
        await write(link, f"{tmp_path}/{text}", name)
        assert Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).read_bytes() == name
    entries, _ = await listed(link, "file.list", {"path": str(tmp_path)})
    assert {os.fsencode(entry["name"]) for entry in entries} == {raw[:120], raw[120:], b" ", b"-rf", b"a\nb"}


@pytest.mark.parametrize(
    ("op", "params", "code"),
    [
        ("file.read", {"path": "/no/such"}, "not_found"),
        ("file.read", {"path": "/etc"}, "is_directory"),
        ("file.read", {"path": "/etc/passwd/x"}, "not_directory"),
        ("file.read", {"path": "/dev/zero"}, "invalid_argument"),
        ("file.read", {"path": "a\0b"}, "invalid_argument"),
        ("file.read", {"path": "/" + "a" * 300}, "invalid_argument"),
        ("file.read", {"path": "/a" * 3000}, "invalid_argument"),
        ("file.read", {"path": ""}, "invalid_argument"),
        ("file.read", {}, "invalid_argument"),
        ("file.read", {"path": 7}, "invalid_argument"),
        ("file.read", {"path": "/etc/passwd", "offset": -1}, "invalid_argument"),
        ("file.stat", {"path": "/no/such"}, "not_found"),
        ("file.list", {"path": "/etc/passwd"}, "not_directory"),
        ("file.remove", {"path": "/etc"}, "not_empty"),
        ("file.remove", {"path": "/"}, "invalid_argument"),
        ("file.mkdir", {"path": "/etc", "exist_ok": False}, "exists"),
        ("file.mkdir", {"path": "/proc/x"}, "not_found"),
        ("file.search", {"path": "/etc/passwd", "pattern": "("}, "invalid_argument"),
        ("file.stat", {"path": "/", "user": "no-such-user"}, "unknown_user"),
        ("file.pack", {"path": "/etc", "format": "rar"}, "invalid_argument"),
    ],
)
async def test_bad_requests_have_stable_codes(link: GuestLink, op: str, params: dict[str, Any], code: str) -> None:
    with pytest.raises(errors.AtollError) as caught:
        await read(link, op, **params)
    assert caught.value.code == code


async def test_each_user_has_its_own_rights(link: GuestLink, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"x")
    (tmp_path / "secret").chmod(0o600)
    for folder in (tmp_path, *tmp_path.parents):
        if folder != Path("/") and folder != Path("/tmp"):
            folder.chmod(0o755)
    for op in ("file.read", "file.pack"):
        with pytest.raises(errors.Forbidden):
            await read(link, op, path=str(tmp_path / "secret"), user="nobody")
    with pytest.raises(errors.Forbidden):
        await write(link, tmp_path / "secret", b"y", user="nobody")
    with pytest.raises(errors.Forbidden):
        await write(link, tmp_path / "other", b"y", user="nobody")
    assert (tmp_path / "secret").read_bytes() == b"x"


async def test_many_files_in_one_call(link: GuestLink, tmp_path: Path) -> None:
    async with link.stream("file.write_many", {}) as stream:
        for number in range(300):
            await stream.send_control({"path": str(tmp_path / f"{number % 7}/{number}"), "mode": 0o600})
            await stream.send(b"%d" % number)
        await stream.commit()
        assert await stream.receive() == wire.Ok({"written": 300})
    assert (tmp_path / "6/6").read_bytes() == b"6"
    assert (tmp_path / "6/6").stat().st_mode & 0o777 == 0o600


async def test_move_copy_remove_links_and_rights(link: GuestLink, tmp_path: Path) -> None:
    a, b, c = (str(tmp_path / name) for name in "abc")
    await link.call("file.touch", {"path": a})
    await link.call("file.move", {"path": a, "target": b})
    await link.call("file.copy", {"path": b, "target": c})
    await link.call("file.chmod", {"path": c, "mode": 0o711})
    await link.call("file.symlink", {"path": a, "target": "c"})
    found = await link.call("file.stat", {"path": a})
    assert (found["type"], found["target"]) == ("symlink", "c")
    assert (await link.call("file.stat", {"path": a, "follow": True}))["mode"] == 0o711
    with pytest.raises(errors.Conflict):
        await link.call("file.move", {"path": b, "target": c, "overwrite": False})
    await link.call("file.remove", {"path": str(tmp_path), "recursive": True})
    assert not tmp_path.exists()
    assert await link.call("file.remove", {"path": a, "missing_ok": True}) == {"removed": False}


async def test_list_find_search_and_replace(link: GuestLink, tmp_path: Path) -> None:
    (tmp_path / "x/y").mkdir(parents=True)
    (tmp_path / "x/one.py").write_text("import os\nprint(os)\n")
    (tmp_path / "x/y/two.py").write_text("os = 1\n")
    (tmp_path / "x/bin").write_bytes(b"os\0")
    entries, end = await listed(link, "file.list", {"path": str(tmp_path), "depth": 2})
    assert [entry["name"] for entry in entries] == ["x", "bin", "one.py", "y"]
    assert end == {"count": 4, "truncated": False}
    entries, end = await listed(link, "file.list", {"path": str(tmp_path), "depth": 9, "entries_max": 2})
    assert end["truncated"]
    entries, _ = await listed(link, "file.find", {"path": str(tmp_path), "pattern": "*.py"})
    assert [entry["name"] for entry in entries] == ["one.py", "two.py"]
    matches, end = await listed(link, "file.search", {"path": str(tmp_path), "pattern": r"\bos\b"})
    assert [(match["line"], match["column"]) for match in matches] == [(1, 8), (2, 7), (1, 1)]
    assert end["skipped"] == 1
    _, end = await listed(link, "file.replace", {"path": str(tmp_path), "pattern": "os", "replacement": "sys"})
    assert end["replaced"] == 3
    assert (tmp_path / "x/one.py").read_text() == "import sys\nprint(sys)\n"


@pytest.mark.parametrize("kind", ["tar", "tar.gz", "zip"])
async def test_a_folder_goes_out_and_in_again(link: GuestLink, tmp_path: Path, kind: str) -> None:
    source = tmp_path / "source"
    (source / "sub/empty").mkdir(parents=True)
    (source / "sub/file").write_bytes(os.urandom(700_000))
    (source / "sub/file").chmod(0o750)
    (source / "sub/link").symlink_to("../sub/file")
    archive = await read(link, "file.pack", path=str(source), format=kind)
    await link.upload("file.unpack", {"path": str(tmp_path / "copy"), "format": kind}, once(archive))
    copy = tmp_path / "copy"
    assert (copy / "sub/file").read_bytes() == (source / "sub/file").read_bytes()
    assert (copy / "sub/file").stat().st_mode & 0o777 == 0o750
    assert (copy / "sub/link").readlink() == Path("../sub/file")
    assert (copy / "sub/empty").is_dir()


def tar_of(*entries: tuple[str, bytes, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, kind, target in entries:
            entry = tarfile.TarInfo(name)
            entry.type = kind
            entry.linkname = target
            entry.size = 1 if kind == tarfile.REGTYPE else 0
            archive.addfile(entry, io.BytesIO(b"x"))
    return buffer.getvalue()


@pytest.mark.parametrize(
    "entries",
    [
        [("../out", tarfile.REGTYPE, "")],
        [("/out", tarfile.REGTYPE, "")],
        [("a/../../out", tarfile.REGTYPE, "")],
        [("l", tarfile.SYMTYPE, "/etc")],
        [("l", tarfile.SYMTYPE, "../out")],
        [("d/l", tarfile.SYMTYPE, ".."), ("m", tarfile.SYMTYPE, "d/l/..")],
        [("d", tarfile.DIRTYPE, ""), ("l", tarfile.SYMTYPE, "d"), ("l/x", tarfile.REGTYPE, "")],
        [("h", tarfile.LNKTYPE, "../out")],
        [("dev", tarfile.CHRTYPE, "")],
        [("fifo", tarfile.FIFOTYPE, "")],
    ],
)
async def test_nothing_of_an_archive_leaves_its_folder(
    link: GuestLink, tmp_path: Path, entries: list[tuple[str, bytes, str]]
) -> None:
    with pytest.raises(errors.InvalidArgument) as caught:
        await link.upload("file.unpack", {"path": str(tmp_path / "in")}, once(tar_of(*entries)))
    assert caught.value.code == "unsafe_archive"
    assert os.listdir(tmp_path) == ["in"]


async def test_a_link_that_was_there_before_is_not_written_through(link: GuestLink, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "in/l").symlink_to("../out")
    with pytest.raises(errors.InvalidArgument):
        await link.upload("file.unpack", {"path": str(tmp_path / "in")}, once(tar_of(("l/x", tarfile.REGTYPE, ""))))
    assert os.listdir(tmp_path / "out") == []


async def test_a_bomb_is_cut_off(link: GuestLink, tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", bytes(20 * limits.MIB))
    params = {"path": str(tmp_path), "format": "zip", "bytes_max": limits.MIB}
    with pytest.raises(errors.TooLarge):
        await link.upload("file.unpack", params, once(buffer.getvalue()))
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= limits.MIB


@pytest.mark.parametrize("kind", ["tar", "tar.gz", "zip"])
async def test_garbage_is_no_archive(link: GuestLink, tmp_path: Path, kind: str) -> None:
    with pytest.raises(errors.InvalidArgument):
        await link.upload("file.unpack", {"path": str(tmp_path), "format": kind}, once(os.urandom(5000)))
    assert os.listdir(tmp_path) == []


async def test_changes_are_told_also_in_folders_that_are_new(link: GuestLink, tmp_path: Path) -> None:
    seen: set[tuple[str, str]] = set()
    async with link.stream("file.watch", {"path": str(tmp_path), "recursive": True}, idle_s=5) as stream:
        await stream.receive()
        (tmp_path / "new/deep").mkdir(parents=True)
        (tmp_path / "new/deep/file").write_bytes(b"x")
        (tmp_path / "new/deep/file").rename(tmp_path / "moved")
        (tmp_path / "moved").unlink()
        async for message in stream:
            assert isinstance(message, wire.Event)
            seen.add((message.value["type"], os.path.relpath(message.value["path"], tmp_path)))
            if ("removed", "moved") in seen:
                break
    assert {("created", "new"), ("created", "new/deep"), ("moved_to", "moved")} <= seen


async def test_attributes(link: GuestLink, tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    try:
        os.setxattr(tmp_path / "a", "user.probe", b"")
    except OSError:
        with pytest.raises(errors.AtollError):
            await link.call("file.set_xattr", {"path": str(tmp_path / "a"), "name": "user.k", "value": "dg=="})
        return
    await link.call("file.set_xattr", {"path": str(tmp_path / "a"), "name": "user.k", "value": "dg=="})
    found = await link.call("file.xattr", {"path": str(tmp_path / "a")})
    assert found["attributes"]["user.k"] == "dg=="
