"""`atoll shell` when its terminal ends without being asked to."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from types import SimpleNamespace

import anyio
import pytest

from atoll.cli import shell
from atoll.model.errors import Conflict

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Ending:
    """A terminal whose sandbox ends: after some output, or while somebody types."""

    def __init__(self, typed: bool) -> None:
        self._typed = typed

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b"hello"
        if self._typed:
            await anyio.sleep_forever()
        raise Conflict("the sandbox has ended", code="sandbox_ended")

    async def write(self, _keys: bytes) -> None:
        raise Conflict("the sandbox has ended", code="sandbox_ended")


@pytest.mark.parametrize("typed", [False, True])
async def test_the_end_of_its_sandbox_is_an_error_as_it_is(typed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not inside a group of exceptions, which would be shown as a traceback."""
    theirs, ours = os.openpty()
    out_read, out = os.pipe()
    try:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(fileno=lambda: ours))
        monkeypatch.setattr(sys, "stdout", SimpleNamespace(fileno=lambda: out))
        if typed:
            os.write(theirs, b"\n")
        session = shell._Session("sbx", [], None, None, None, None, {})
        with pytest.raises(Conflict):
            await session._talk(Ending(typed))  # type: ignore[arg-type]
        assert os.read(out_read, 100) == b"hello"
    finally:
        for fd in (theirs, ours, out_read, out):
            os.close(fd)
