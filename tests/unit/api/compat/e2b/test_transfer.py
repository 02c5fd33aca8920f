"""Files over plain HTTP: parts, codings, sizes, and whose rights are used."""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from typing import Any

import pytest

from atoll.api.compat.e2b import transfer
from atoll.wire import framing, guest
from tests.unit.api.compat.e2b.conftest import Inside

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def reads(inside: Inside, size: int, data: bytes) -> list[dict[str, Any]]:
    """Have the guest read a file that calls itself so large; with which parameters it is asked."""
    asked: list[dict[str, Any]] = []

    def script(params: dict[str, Any]) -> Iterable[guest.Message]:
        asked.append(params)
        inside.guest.files["/f"] = b""
        yield guest.Event({"type": "opened", "offset": 0, **inside.guest.describe("/f"), "size": size})
        part = data[params.get("offset", 0) :][: params.get("length")]
        if part:
            yield guest.Data(framing.OUTPUT, part)
        yield guest.End({"bytes": len(part)})

    inside.guest.scripts["file.read"] = script
    return asked


@pytest.mark.parametrize(
    ("asked", "status", "body", "part", "length"),
    [
        ("", 200, b"0123456789", None, "10"),
        ("bytes=2-4", 206, b"234", "bytes 2-4/10", "3"),
        ("bytes=7-", 206, b"789", "bytes 7-9/10", "3"),
        ("bytes=7-99", 206, b"789", "bytes 7-9/10", "3"),
        ("bytes=-3", 200, b"0123456789", None, "10"),
        ("bytes=1-2,4-5", 200, b"0123456789", None, "10"),
    ],
)
async def test_a_part_of_a_file(
    inside: Inside, asked: str, status: int, body: bytes, part: str | None, length: str
) -> None:
    reads(inside, 10, b"0123456789")
    answer = await inside.ask("GET", "/files?path=/f", **({"range": asked} if asked else {}))
    assert (answer.status, answer.body, answer.complete) == (status, body, True)
    assert (answer.headers.get("content-range"), answer.headers["content-length"]) == (part, length)


@pytest.mark.parametrize(("asked", "part"), [("bytes=10-", "bytes */10"), ("bytes=5-2", None)])
async def test_no_part_of_a_file(inside: Inside, asked: str, part: str | None) -> None:
    reads(inside, 10, b"0123456789")
    answer = await inside.ask("GET", "/files?path=/f", range=asked)
    assert (answer.status, answer.headers.get("content-range")) == (416, part)


async def test_what_does_not_say_its_size_is_sent_whole(inside: Inside) -> None:
    """As in /proc. A part of it would have no place that could be told."""
    reads(inside, 0, b"0123456789")
    answer = await inside.ask("GET", "/files?path=/proc/f", range="bytes=2-4")
    assert (answer.status, answer.body) == (200, b"0123456789")
    assert not {"content-range", "content-length"} & answer.headers.keys()
    reads(inside, 0, b"")
    answer = await inside.ask("GET", "/files?path=/f", range="bytes=0-")
    assert (answer.status, answer.body, answer.headers["content-length"]) == (200, b"", "0")


async def test_a_file_that_changes_is_never_longer_than_was_said(inside: Inside) -> None:
    reads(inside, 4, b"0123456789")
    assert (await inside.ask("GET", "/files?path=/f")).body == b"0123"
    reads(inside, 20, b"0123456789")
    answer = await inside.ask("GET", "/files?path=/f")
    assert (answer.headers["content-length"], answer.body, answer.complete) == ("20", b"0123456789", False)


@pytest.mark.parametrize(
    ("accepted", "in_parts", "coding"),
    [
        ("", False, "identity"),
        ("gzip", False, "gzip"),
        ("gzip;q=0", False, "identity"),
        ("gzip", True, "identity"),
        ("gzip, deflate, br", False, "identity"),
        ("identity;q=0, gzip", False, "gzip"),
        ("*;q=0, gzip;q=0.5", False, "gzip"),
        ("identity;q=0, *", False, "gzip"),
        ("br, *;q=0", False, None),
        ("identity;q=0", False, None),
        ("identity;q=0, gzip", True, None),
    ],
)
def test_a_coding_that_the_caller_takes(accepted: str, in_parts: bool, coding: str | None) -> None:
    assert transfer.coding_of(accepted, in_parts=in_parts) == coding


async def test_a_coding_that_there_is_not_is_refused(inside: Inside) -> None:
    reads(inside, 10, b"0123456789")
    answer = await inside.ask("GET", "/files?path=/f", accept_encoding="identity;q=0, br")
    assert (answer.status, answer.json()["code"]) == (406, 406)
    answer = await inside.ask("GET", "/files?path=/f", accept_encoding="gzip")
    assert (gzip.decompress(answer.body), "content-length" in answer.headers) == (b"0123456789", False)


async def test_a_packed_body_is_unpacked_whole(inside: Inside) -> None:
    async def write(body: bytes) -> int:
        return (await inside.ask("POST", "/files?path=/f", body, content_encoding="gzip")).status

    assert await write(gzip.compress(b"one ") + gzip.compress(b"two")) == 200
    assert inside.guest.files["/f"] == b"one two"
    assert await write(gzip.compress(b"three") + b"more") == 400


async def test_root_does_it_for_the_user(inside: Inside) -> None:
    asked = reads(inside, 1, b"1")
    for query, user in (("path=f", {}), ("path=f&username=ada", {"user": "ada"})):
        assert (await inside.ask("GET", f"/files?{query}")).status == 200
        assert asked.pop() == {"path": "f", "as_root": True, **user}


async def test_files_are_composed(inside: Inside) -> None:
    asked: list[dict[str, Any]] = []

    def script(params: dict[str, Any]) -> Iterable[guest.Message]:
        asked.append(params)
        inside.guest.files["/home/user/whole"] = b"12"
        yield guest.Ok(inside.guest.describe("/home/user/whole"))

    inside.guest.scripts["file.join"] = script
    body = {"source_paths": ["1", "2"], "destination": "whole", "username": "ada"}
    answer = await inside.ask("POST", "/files/compose", body)
    assert (answer.status, answer.json()) == (200, {"path": "/home/user/whole", "name": "whole", "type": "file"})
    assert asked == [{"paths": ["1", "2"], "target": "whole", "user": "ada", "as_root": True}]
    inside.guest.scripts["file.join"] = lambda params: [guest.Failure("not_found", "1: no such file")]
    assert (await inside.ask("POST", "/files/compose", body)).status == 404
    assert (await inside.ask("POST", "/files/compose", {"destination": "whole"})).status == 400
    assert (await inside.ask("POST", "/files/compose", body, x_access_token="wrong")).status == 401
