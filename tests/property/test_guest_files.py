"""Paths and archives of the guest, whatever they are made of."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from atoll.guest import packing, params, unpacking
from atoll.guest.channel import Channel
from atoll.guest.failure import Refused
from atoll.guest.users import User
from atoll.model import limits

USER = User("root", 0, 0, (0,), "/root", "/bin/sh")


@given(st.text(alphabet=st.one_of(st.characters(), st.sampled_from("/.~\0\udcff")), max_size=600))
def test_any_text_is_an_absolute_path_or_refused(text: str) -> None:
    """And what it becomes says the same as what was written: no part is dropped, none is added."""
    if not text or "\0" in text or _no_name(text) or any(len(os.fsencode(part)) > 255 for part in text.split("/")):
        with pytest.raises(Refused):
            params.path({"path": text}, "/home/user")
        return
    found = params.path({"path": text}, "/home/user")
    assert found.startswith("/")
    assert "\0" not in found
    assert len(os.fsencode(found)) < limits.PATH_BYTES_MAX + len("/home/user/")
    assert text.startswith("/") or found.startswith("/home/user")
    assert found.endswith(text.removeprefix("~"))


def _no_name(text: str) -> bool:
    try:
        os.fsencode(text)
    except UnicodeError:
        return True
    return False


class Wire:
    """What was packed goes back in pieces of one size."""

    def __init__(self, piece_bytes: int) -> None:
        self.data = bytearray()
        self._piece_bytes = piece_bytes

    def send_event(self, *_: Any) -> None: ...

    def send_end(self, *_: Any) -> None: ...

    def send_ok(self, *_: Any) -> None: ...

    def send_data(self, _kind: int, payload: memoryview) -> None:
        self.data += payload

    def read_upload(self) -> Iterator[memoryview]:
        for start in range(0, len(self.data), self._piece_bytes):
            yield memoryview(bytes(self.data[start : start + self._piece_bytes]))


names = st.binary(min_size=1, max_size=40).filter(lambda name: not {0, 47} & set(name) and name not in (b".", b".."))
trees = st.dictionaries(
    names,
    st.one_of(st.binary(max_size=3000), st.dictionaries(names, st.binary(max_size=100), max_size=3)),
    max_size=5,
)


def _make(root: bytes, tree: dict[bytes, Any]) -> None:
    os.mkdir(root)
    for name, content in tree.items():
        where = root + b"/" + name
        if isinstance(content, dict):
            _make(where, content)
        else:
            Path(os.fsdecode(where)).write_bytes(content)


def _found(root: bytes) -> dict[bytes, Any]:
    return {
        entry.name: _found(entry.path) if entry.is_dir() else Path(os.fsdecode(entry.path)).read_bytes()
        for entry in os.scandir(root)
    }


@pytest.mark.parametrize("kind", ["tar", "tar.gz"])
@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(tree=trees, piece_bytes=st.integers(1, 5000))
def test_any_tree_comes_back_as_it_was(kind: str, tree: dict[bytes, Any], piece_bytes: int) -> None:
    """Names of any bytes, contents of any bytes, however the archive is cut on its way."""
    with tempfile.TemporaryDirectory() as folder:
        _make(os.fsencode(folder) + b"/in", tree)
        wire = Wire(piece_bytes)
        channel = cast(Channel, wire)
        packing.pack(USER, {"path": f"{folder}/in", "format": kind}, channel)
        unpacking.unpack(USER, {"path": f"{folder}/out", "format": kind}, channel)
        assert _found(os.fsencode(folder) + b"/out") == tree


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(
    tree=trees, kind=st.sampled_from(["tar", "tar.gz", "zip"]), where=st.integers(0, 10_000), what=st.integers(1, 255)
)
def test_an_archive_with_a_changed_byte_is_unpacked_or_refused(
    tree: dict[bytes, Any], kind: str, where: int, what: int
) -> None:
    """With one code or another, never with a fault of ours; and nothing is outside the folder."""
    with tempfile.TemporaryDirectory() as folder:
        _make(os.fsencode(folder) + b"/in", tree)
        wire = Wire(1000)
        channel = cast(Channel, wire)
        packing.pack(USER, {"path": f"{folder}/in", "format": kind}, channel)
        if wire.data:
            wire.data[where % len(wire.data)] ^= what
        with suppress(Refused, OSError):  # what has no name of its own is told by its errno
            unpacking.unpack(USER, {"path": f"{folder}/out", "format": kind, "bytes_max": 1 << 20}, channel)
        assert sorted(os.listdir(folder)) in (["in"], ["in", "out"])
