"""What the two flavours do differently does the same."""

from __future__ import annotations

import io

import pytest

from atoll.client import _twins as twins
from atoll.client._config import Config
from atoll.model import limits
from atoll.model.errors import InvalidArgument

BIG = bytes(limits.UPLOAD_CHUNK_BYTES * 2 + 1)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.anyio
async def test_content_comes_in_bounded_pieces() -> None:
    for make in (lambda: BIG, lambda: bytearray(BIG), lambda: io.BytesIO(BIG), lambda: [BIG[:10], BIG[10:]]):
        assert b"".join(twins.chunks(make())) == BIG
        assert b"".join([piece async for piece in twins.async_chunks(make())]) == BIG
    assert max(len(piece) for piece in twins.chunks(BIG)) == limits.UPLOAD_CHUNK_BYTES
    with pytest.raises(InvalidArgument):
        list(twins.chunks(io.StringIO("text")))  # type: ignore[arg-type]


@pytest.mark.anyio
async def test_callbacks_may_be_coroutines() -> None:
    seen: list[str] = []

    async def later(text: str) -> None:
        seen.append(text)

    await twins.async_notify(later, "a")
    await twins.async_notify(seen.append, "b")
    await twins.async_notify(None, "c")
    twins.notify(seen.append, "d")
    assert seen == ["a", "b", "d"]


def test_work_beside_reports_its_error() -> None:
    def fail() -> None:
        raise InvalidArgument("beside")

    with pytest.raises(InvalidArgument), twins.Beside(fail):
        pass


@pytest.mark.anyio
async def test_async_work_beside_reports_its_error_and_is_cancelled() -> None:
    async def fail() -> None:
        raise InvalidArgument("beside")

    with pytest.raises(InvalidArgument):
        async with twins.AsyncBeside(fail):
            await twins.async_sleep(1)

    async with twins.AsyncBeside(lambda: twins.async_sleep(60)):
        pass

    with pytest.raises(ZeroDivisionError):
        async with twins.AsyncBeside(lambda: twins.async_sleep(60)):
            raise ZeroDivisionError


def test_a_forked_child_shares_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    shared: twins.Shared[int] = twins.Shared()
    with shared.lock():  # whoever holds it in the parent is not there to let go of it in the child
        shared.values()[Config("http://a", "k")] = 1
        assert len(shared.values()) == 1
        monkeypatch.setattr("os.getpid", lambda: -1)
        with shared.lock():
            assert not shared.values()
