"""Calls to a sentry that is well, refuses, talks nonsense, talks without end, or is gone."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from pathlib import Path

import pytest

from atoll.model import limits
from atoll.model.errors import Internal
from atoll.node.install import definitions, gvisor
from atoll.node.runtime import sentrycall
from atoll.node.runtime.standing import Standing

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def answered_with(path: Path, *parts: bytes) -> dict[str, object]:
    """What a sentry that answers with these parts was asked."""
    asked = b""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked = await reader.read(4096)
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0)
        writer.close()

    async with await asyncio.start_unix_server(serve, path):
        await sentrycall.call(path, sentrycall.PAUSE)
    found: dict[str, object] = json.loads(asked)
    return found


async def test_a_socket_may_lie_deep(tmp_path: Path) -> None:
    """Its path is longer than the name of a socket may be, so even the server needs another way to it."""
    deep = tmp_path / ("deep" * 30)
    deep.mkdir()
    folder = os.open(deep, os.O_PATH)
    async with await asyncio.start_unix_server(_well, f"/proc/self/fd/{folder}/s"):
        await sentrycall.call(deep / "s", sentrycall.PAUSE)
    os.close(folder)


async def _well(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(4096)
    writer.write(b'{"success":true}')
    writer.close()


async def test_an_answer_may_come_in_pieces(tmp_path: Path) -> None:
    asked = await answered_with(tmp_path / "s", b'{"success":tr', b'ue,"err":"","result":{}}\n')
    assert asked == {"method": "containerManager.Pause", "arg": None}


@pytest.mark.parametrize(
    "parts",
    [
        (b'{"success":false,"err":"no such thing"}',),
        (b'{"success":1}',),
        (b"[]",),
        (b"not json",),
        (b"",),
        (b"[" * (limits.SENTRY_ANSWER_BYTES_MAX + 1),),
    ],
)
async def test_anything_else_is_an_error(tmp_path: Path, parts: tuple[bytes, ...]) -> None:
    with pytest.raises(Internal) as caught:
        await answered_with(tmp_path / "s", *parts)
    assert caught.value.code == "runtime_failed"


async def test_a_sentry_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(Internal):
        await sentrycall.call(tmp_path / "none", sentrycall.RESUME)


async def test_whether_it_stands_still_is_on_record(tmp_path: Path) -> None:
    standing = Standing(tmp_path)
    assert standing.is_still() is False
    standing.moving()
    assert Standing(tmp_path).is_still() is None
    standing.still()
    assert Standing(tmp_path).is_still() is True
    standing.runs()
    standing.runs()
    assert standing.is_still() is False


async def test_descriptors_go_along(tmp_path: Path) -> None:
    """What the sentry gets is the file itself, not a path that it could not open."""
    got: list[tuple[bytes, bytes]] = []
    (tmp_path / "pages").write_bytes(b"the pages")

    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            data, fds, _, _ = socket.recv_fds(connection, 65536, 4)
            got.append((data, os.read(fds[0], 100)))
            for fd in fds:
                os.close(fd)
            connection.sendall(b'{"success":true,"err":"","result":{}}')

    with socket.socket(socket.AF_UNIX) as listener, open(tmp_path / "pages", "rb") as pages:
        listener.bind(str(tmp_path / "s"))
        listener.listen(1)
        serving = asyncio.to_thread(serve, listener)
        calling = sentrycall.call(tmp_path / "s", sentrycall.RESTORE, {"HavePagesFile": True}, [pages.fileno()])
        await asyncio.gather(serving, calling)
    assert json.loads(got[0][0]) == {"method": "containerManager.Restore", "arg": {"HavePagesFile": True}}
    assert got[0][1] == b"the pages"


def test_the_known_gvisor_is_the_one_that_set_up_builds() -> None:
    """Whoever pins another reads its words for checkpoint and restore first, or they go the slow way."""
    release = gvisor.release_name(definitions.file_bytes("runsc", "go.mod").decode())
    assert release.endswith(sentrycall.KNOWN_COMMIT)
