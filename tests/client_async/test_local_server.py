"""The SDK against the real server (on a node without a machine), which it finds by itself."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from atoll.client import AsyncSandbox, Output
from atoll.model.errors import Conflict, InvalidArgument, NotFound, Unauthenticated

pytestmark = pytest.mark.anyio

REAL_SERVER = Path(__file__).resolve().parent.parent / "unit" / "client" / "real_server.py"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("data")
    with subprocess.Popen([sys.executable, str(REAL_SERVER), str(folder)]) as server:
        deadline_s = time.monotonic() + 30
        while not (folder / "server.json").exists():
            assert server.poll() is None
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
        yield folder
        server.terminate()


@pytest.fixture(autouse=True)
def local(data: Path, environment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ATOLL_URL")
    monkeypatch.delenv("ATOLL_API_KEY")
    monkeypatch.setenv("ATOLL_DATA", str(data))


async def test_from_create_to_kill() -> None:
    async with await AsyncSandbox.create(name="one", env={"A": "1"}, metadata={"k": "a=b"}, memory="512MiB") as sb:
        result = await sb.commands.run("echo $A; echo no >&2; exit 3")
        assert (result.stdout, result.stderr, result.exit_code) == ("1\n", "no\n", 3)
        assert [view.id async for view in AsyncSandbox.list(metadata={"k": "a=b"}, state="running")] == [sb.id]
        assert (await sb.set_timeout(900)).state == "running"
        found = await AsyncSandbox.connect("one")
        assert (await found.info()).resources.memory_bytes == 512 * 1024**2
        await found.aclose()
    ended = await AsyncSandbox.connect(sb.id)
    assert (await ended.info()).end_reason == "killed_by_user"
    with pytest.raises(Conflict) as caught:
        await ended.commands.run("true")
    assert caught.value.code == "not_running"
    await ended.aclose()


async def test_processes() -> None:
    async with await AsyncSandbox.create() as sb:
        process = await sb.commands.start("echo one; sleep 0.1; echo two", tag="job")
        texts = [event.text async for event in process if isinstance(event, Output)]
        assert "".join(texts) == "one\ntwo\n"
        assert (await (await sb.commands.attach("job")).wait()).stdout == "one\ntwo\n"
        data = os.urandom(300_000)
        assert (await sb.commands.run("cat", stdin=data)).stdout_bytes == data
        sleeper = await sb.commands.start(["sleep", "60"])
        await sleeper.kill()
        assert (await sleeper.wait()).signal == 9
        with pytest.raises(InvalidArgument) as caught:
            await sb.commands.run(["nonesuch"])
        assert caught.value.code == "no_such_program"


async def test_files(tmp_path: Path) -> None:
    async with await AsyncSandbox.create() as sb:
        await sb.files.write("d/a.txt", "hello ü")
        assert await sb.files.read("d/a.txt") == "hello ü"
        assert await sb.files.read_bytes("d/a.txt", offset=1, length=3) == b"ell"
        assert [view.name for view in await sb.files.list("d")] == ["a.txt"]
        await sb.files.mkdir("e")
        await sb.files.move("d/a.txt", "e/b.txt")
        assert await sb.files.exists("e/b.txt")
        assert not await sb.files.exists("d/a.txt")
        big = tmp_path / "big"
        big.write_bytes(os.urandom(3_000_000))
        await sb.files.upload(big, "big")
        await sb.files.download("big", tmp_path / "back")
        assert (tmp_path / "back").read_bytes() == big.read_bytes()
        await sb.files.remove("e", recursive=True)
        with pytest.raises(NotFound):
            await sb.files.read("e/b.txt")


async def test_errors() -> None:
    with pytest.raises(NotFound):
        await AsyncSandbox.connect("nobody")
    with pytest.raises(InvalidArgument) as caught:
        await AsyncSandbox.create(timeout_s=-1)
    assert caught.value.code == "invalid_timeout"
    with pytest.raises(Unauthenticated):
        await AsyncSandbox.create(api_key="atoll_wrong")
