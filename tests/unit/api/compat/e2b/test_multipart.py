"""Forms with files, as they stream in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.api.compat.e2b.multipart import PartBegun, PartData, PartEnded, Parts, boundary_of
from atoll.model import limits
from atoll.model.errors import InvalidArgument


def read(body: bytes, size: int) -> list[tuple[str | None, bytes]]:
    """The files in a body that comes in pieces."""
    parts = Parts(b"BOUND")
    files: list[tuple[str | None, bytes]] = []
    for at in range(0, len(body), size):
        for happening in parts.feed(body[at : at + size]):
            if isinstance(happening, PartBegun):
                files.append((happening.filename, b""))
            elif isinstance(happening, PartData):
                files[-1] = (files[-1][0], files[-1][1] + happening.data)
            else:
                assert isinstance(happening, PartEnded)
    parts.close()
    return files


def form(files: list[tuple[str, bytes]]) -> bytes:
    parts = [
        b'--BOUND\r\nContent-Disposition: form-data; name="file"; filename="'
        + name.encode()
        + b'"\r\nContent-Type: application/octet-stream\r\n\r\n'
        + data
        + b"\r\n"
        for name, data in files
    ]
    return b"".join(parts) + b"--BOUND--\r\n"


CONTENT = st.one_of(st.binary(max_size=300), st.sampled_from([b"\r\n", b"\r\n--BOUN", b"--BOUND", b"\r\n--bound--"]))


@given(st.lists(CONTENT, min_size=1, max_size=4), st.integers(1, 64))
def test_files_come_out_as_they_went_in(contents: list[bytes], size: int) -> None:
    files = [(f"/home/user/{number}", data) for number, data in enumerate(contents) if b"\r\n--BOUND" not in data]
    assert read(form(files), size) == files


def test_names_in_quotes_and_in_utf8() -> None:
    head = b'--BOUND\r\ncontent-disposition: form-data; name="file"; filename="a%22b\\"c"\r\n\r\n1\r\n'
    other = b"--BOUND\r\nContent-Disposition: form-data; name=file; filename*=utf-8''h%C3%A9\r\n\r\n2\r\n--BOUND--"
    assert read(head + other, 7) == [('a"b"c', b"1"), ("hé", b"2")]


@pytest.mark.parametrize("body", [b"", b"--BOUND", form([("a", b"x")])[:-10], b"--BOUNDxx"])
def test_a_body_that_is_cut_off_or_broken_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidArgument):
        read(body or b"x", 1000)


def test_a_head_without_end_is_refused() -> None:
    with pytest.raises(InvalidArgument):
        read(b"--BOUND\r\n" + b"x" * (limits.HTTP_HEAD_BYTES_MAX + 10), 4096)


def test_the_boundary_is_in_the_content_type() -> None:
    assert boundary_of('multipart/form-data; boundary="a b"; charset=x') == b"a b"
    assert boundary_of("multipart/form-data; boundary=abc") == b"abc"
    with pytest.raises(InvalidArgument):
        boundary_of("multipart/form-data")
