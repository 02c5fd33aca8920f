"""Files over HTTP: streamed both ways, names of any bytes, and guests that lie about sizes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from atoll.model import limits
from atoll.testing.asgi import Caller
from atoll.wire import framing, guest

pytestmark = pytest.mark.anyio


async def test_what_was_written_is_read(inside: Any) -> None:
    answer = await inside.ask("PUT", "~/files/content?path=a/b.txt&mode=600", b"hello")
    assert answer.json() == {"path": "/home/user/a/b.txt", "size": 5}
    answer = await inside.ask("GET", "~/files/content?path=/home/user/a/b.txt")
    assert (answer.body, answer.headers["content-length"]) == (b"hello", "5")
    answer = await inside.ask("GET", "~/files/content?path=a/b.txt&offset=1&length=3")
    assert (answer.body, answer.headers["content-length"]) == (b"ell", "3")
    await inside.ask("PUT", "~/files/content?path=a/b.txt&append=true", b" you")
    assert (await inside.ask("GET", "~/files/content?path=a/b.txt")).body == b"hello you"


async def test_who_uses_a_signed_address_counts_as_the_key_that_made_it(inside: Any) -> None:
    """In the audit log, where something is written, and for the key's rate."""
    made = (await inside.ask("POST", "/v1/keys", {"name": "x", "quota": {"requests_per_second": 0.001}})).json()
    slow, stranger = Caller(inside.app, made["key"]), Caller(inside.app)
    body = {"path": "a", "method": "PUT"}
    addresses = [
        (await who.ask("POST", f"/v1/sandboxes/{inside.sandbox}/files/urls", body)).json()["url"]
        for who in (inside.caller, slow)
    ]
    assert (await stranger.ask("PUT", addresses[0], b"1")).status == 200
    refused = await stranger.ask("PUT", addresses[1], b"2")
    assert (refused.status, refused.json()["code"]) == (429, "rate_limited")
    assert inside.guest.files["/home/user/a"] == b"1"
    inside.control.accounts.refusals.close()
    await inside.control.accounts.events.flush()
    first, second = (await inside.ask("GET", "/v1/events?action=PUT*&action=request.refused")).json()["items"]
    assert (first["target"], first["result"], second["result"]) == (inside.sandbox, "ok", "rate_limited")
    assert second["actor"] == made["view"]["id"] != first["actor"]


async def test_a_large_file_goes_through_in_pieces(inside: Any) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for number in range(5):
            yield bytes([number]) * limits.MIB

    answer = await inside.ask("PUT", "~/files/content?path=big", chunks=pieces())
    assert answer.json()["size"] == 5 * limits.MIB
    answer = await inside.ask("GET", "~/files/content?path=big")
    assert answer.body == b"".join(bytes([number]) * limits.MIB for number in range(5))


async def test_an_upload_that_breaks_off_changes_nothing(inside: Any) -> None:
    gone = anyio.Event()

    async def pieces() -> AsyncIterator[bytes]:
        yield b"first"
        gone.set()
        yield b"second"

    answer = await inside.ask("PUT", "~/files/content?path=half", chunks=pieces(), gone=gone)
    assert answer.status == 0
    assert inside.guest.files == {}
    assert inside.guest.streams == 0


async def test_names_of_any_bytes_arrive_as_they_are(inside: Any) -> None:
    await inside.ask("PUT", "~/files/content?path=x%ff%20y", b"1")
    assert set(inside.guest.files) == {"/home/user/x\udcff y"}
    answer = await inside.ask("GET", "~/files?path=.")
    assert [item["name"] for item in answer.json()["items"]] == ["x\udcff y"]
    answer = await inside.ask("POST", "~/files/move", {"source": "x\udcff y", "target": "z"})
    assert answer.status == 204
    assert set(inside.guest.files) == {"/home/user/z"}


async def test_directories_stat_and_remove(inside: Any) -> None:
    assert (await inside.ask("POST", "~/directories", {"path": "a/b"})).status == 201
    assert (await inside.ask("GET", "~/files/stat?path=a/b")).json()["type"] == "directory"
    answer = await inside.ask("DELETE", "~/files?path=a")
    assert (answer.status, answer.json()["code"]) == (409, "not_empty")
    assert (await inside.ask("DELETE", "~/files?path=a&recursive=true")).status == 204
    answer = await inside.ask("GET", "~/files/stat?path=a/b")
    assert (answer.status, answer.json()["code"]) == (404, "not_found")


@pytest.mark.parametrize(
    ("method", "target", "code"),
    [
        ("GET", "~/files/content", "invalid_query"),
        ("GET", "~/files/content?path=x&offset=y", "invalid_query"),
        ("PUT", "~/files/content?path=x&mode=999", "invalid_query"),
        ("GET", "~/files/content?path=/home", "is_directory"),
    ],
)
async def test_bad_requests(inside: Any, method: str, target: str, code: str) -> None:
    answer = await inside.ask(method, target, b"")
    assert (answer.status, answer.json()["code"]) == (400, code)


async def test_a_file_that_grows_or_shrinks_while_it_is_read(inside: Any) -> None:
    inside.guest.files["/home/user/f"] = b"12345"
    opened = guest.Event({"type": "opened", **inside.guest.describe("/home/user/f")})
    end = guest.End({})
    inside.guest.scripts["file.read"] = lambda _: [opened, guest.Data(framing.OUTPUT, b"1234567"), end]
    answer = await inside.ask("GET", "~/files/content?path=f")
    assert (answer.body, answer.complete) == (b"12345", True)
    inside.guest.scripts["file.read"] = lambda _: [opened, guest.Data(framing.OUTPUT, b"123"), end]
    answer = await inside.ask("GET", "~/files/content?path=f")
    assert (answer.body, answer.complete) == (b"123", False)


async def test_a_file_without_a_size_is_read_to_its_end(inside: Any) -> None:
    inside.guest.files["/home/user/f"] = b""
    opened = guest.Event({"type": "opened", **inside.guest.describe("/home/user/f")})
    inside.guest.scripts["file.read"] = lambda _: [opened, guest.Data(framing.OUTPUT, b"cpu 0"), guest.End({})]
    answer = await inside.ask("GET", "~/files/content?path=f")
    assert (answer.body, answer.complete) == (b"cpu 0", True)
    assert "content-length" not in answer.headers


async def test_a_reader_who_leaves_ends_the_download(inside: Any) -> None:
    inside.guest.files["/home/user/f"] = b"x" * 100
    opened = guest.Event({"type": "opened", **inside.guest.describe("/home/user/f"), "size": 2**62})

    def endless(_: dict[str, Any]) -> Any:
        yield opened
        while True:
            yield guest.Data(framing.OUTPUT, b"x")

    inside.guest.scripts["file.read"] = endless
    gone, begun = anyio.Event(), anyio.Event()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: inside.ask("GET", "~/files/content?path=f", gone=gone, begun=begun))
            await begun.wait()
            gone.set()
    assert inside.guest.streams == 0


async def test_a_caller_who_leaves_ends_the_search(inside: Any) -> None:
    def endless(_: dict[str, Any]) -> Any:
        while True:
            yield guest.Event({"type": "entries", "entries": []})

    inside.guest.scripts["file.search"] = endless
    gone = anyio.Event()
    gone.set()
    with anyio.fail_after(5):
        await inside.ask("POST", "~/files/search", {"path": "/", "pattern": "x"}, gone=gone)
    assert inside.guest.streams == 0


@pytest.mark.parametrize(
    "lie",
    [
        {},
        {"path": 5},
        {"path": "x", "name": "x", "type": "file", "size": -1, "mode": 0, "mtime_ns": 0, "uid": 0, "gid": 0},
        {"path": "x", "name": "x", "type": "file", "size": 1, "mode": 0, "mtime_ns": 10**40, "uid": 0, "gid": 0},
        {"path": "x" * 10**6, "name": "x", "type": "file", "size": 1, "mode": 0, "mtime_ns": 0, "uid": 0, "gid": 0},
    ],
)
async def test_a_guest_that_lies_about_a_file_is_a_502(inside: Any, lie: dict[str, Any]) -> None:
    inside.guest.scripts["file.stat"] = lambda _: [guest.Ok(lie)]
    answer = await inside.ask("GET", "~/files/stat?path=x")
    assert (answer.status, answer.json()["code"]) == (502, "guest_failed")
