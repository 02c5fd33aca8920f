"""Files in E2B's words."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.api.compat.e2b import filesystem, metadata
from atoll.model.errors import InvalidArgument
from atoll.wire import guest

FILE: dict[str, Any] = {
    "path": "/home/user/a",
    "name": "a",
    "type": "file",
    "size": 5,
    "mode": 0o644,
    "mtime_ns": 1_500_000_000,
    "uid": 1000,
    "gid": 1000,
    "user": "user",
    "group": "user",
    "xattrs": {"user.e2b.kind": "test", "user.other": "x", "user.e2b.bad": 7},
}


def test_a_file_has_every_field() -> None:
    assert filesystem.entry(FILE) == {
        "name": "a",
        "type": "FILE_TYPE_FILE",
        "path": "/home/user/a",
        "size": "5",
        "mode": 0o644,
        "permissions": "-rw-r--r--",
        "owner": "user",
        "group": "user",
        "modifiedTime": "1970-01-01T00:00:01.500000Z",
        "metadata": {"kind": "test"},
    }


def test_a_link_has_the_type_of_its_target() -> None:
    link = {**FILE, "type": "symlink", "target": "b", "target_type": "directory"}
    shown = filesystem.entry(link)
    assert (shown["type"], shown["isSymlink"], shown["symlinkTarget"]) == ("FILE_TYPE_DIRECTORY", True, "b")
    assert filesystem.entry({**link, "target_type": None})["type"] == "FILE_TYPE_SYMLINK"


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("created", "CREATE"),
        ("moved_to", "CREATE"),
        ("modified", "WRITE"),
        ("removed", "REMOVE"),
        ("attributes", "CHMOD"),
    ],
)
def test_changes_have_their_kinds(kind: str, told: str) -> None:
    value = {"type": kind, "path": "/w/below/f", "directory": False}
    assert filesystem.change(value, "/w") == {"name": "below/f", "type": f"EVENT_TYPE_{told}"}


@pytest.mark.parametrize(("kind", "path"), [("written", "/w/f"), ("created", "/w/.atoll-0011"), ("created", "/w")])
def test_some_changes_are_not_told(kind: str, path: str) -> None:
    assert filesystem.change({"type": kind, "path": path}, "/w") is None


def test_labels_come_in_headers() -> None:
    assert metadata.from_headers([(b"x-metadata-Kind", b"test"), (b"host", b"x")]) == {"kind": "test"}
    with pytest.raises(InvalidArgument):
        metadata.from_headers([(b"x-metadata-a b", b"x")])


@pytest.mark.anyio
async def test_a_list_that_was_cut_is_refused(inside: Any) -> None:
    """E2B's answer has no word for it, and half a list would pass for all of it."""
    for truncated, status in ((False, 200), (True, 429)):
        told = [guest.Event({"entries": [FILE]}), guest.End({"count": 1, "truncated": truncated})]
        inside.guest.scripts["file.list"] = lambda _, told=told: told
        answer = await inside.ask("POST", "/filesystem.Filesystem/ListDir", {"path": "/home/user", "depth": 1})
        assert answer.status == status, answer.json()
    assert "ask for less depth" in answer.json()["message"]
