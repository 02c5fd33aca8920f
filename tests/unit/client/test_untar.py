"""Archives from a sandbox, in pieces of any size, and hostile ones."""

from __future__ import annotations

import contextlib
import io
import tarfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.client._untar import Entry, TarReader
from atoll.model.errors import GuestFailed

names = st.binary(min_size=1, max_size=300).map(lambda raw: raw.replace(b"/", b"_").replace(b"\0", b"_"))
members = st.dictionaries(names, st.binary(max_size=3000), max_size=5)


def tar_of(content: dict[bytes, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT, errors="surrogateescape") as archive:
        for name, data in content.items():
            entry = tarfile.TarInfo(name.decode("utf-8", "surrogateescape"))
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def read(archive: bytes, step: int) -> dict[bytes, bytes]:
    reader = TarReader()
    found: dict[bytes, bytes] = {}
    name = b""
    for start in range(0, len(archive), step):
        for item in reader.feed(archive[start : start + step]):
            if isinstance(item, Entry):
                name = item.name.encode("utf-8", "surrogateescape")
                found[name] = b""
            else:
                found[name] += item
    reader.check_complete()
    return found


@settings(max_examples=60)
@given(members, st.integers(1, 5000))
def test_what_was_packed_comes_out(content: dict[bytes, bytes], step: int) -> None:
    assert read(tar_of(content), step) == content


@settings(max_examples=60)
@given(st.binary(max_size=3000), st.integers(0, 1500))
def test_garbage_is_refused_or_incomplete(garbage: bytes, cut: int) -> None:
    archive = tar_of({b"a": b"x" * 600})
    with contextlib.suppress(GuestFailed):  # and nothing else
        read(archive[:cut] + garbage, 700)


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.GNUTYPE_LONGNAME])
def test_other_things_are_refused(kind: bytes) -> None:
    entry = tarfile.TarInfo("x")
    entry.type = kind
    with pytest.raises(GuestFailed):
        list(TarReader().feed(entry.tobuf()))


def test_an_endless_header_is_refused() -> None:
    entry = tarfile.TarInfo("x")
    entry.type, entry.size = tarfile.XHDTYPE, 10**9
    with pytest.raises(GuestFailed):
        list(TarReader().feed(entry.tobuf()))
