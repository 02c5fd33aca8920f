"""A sandbox that does not come up: its error is the typed one, whether it ended or is silent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from atoll.model import limits
from atoll.model.errors import AtollError, GuestFailed
from atoll.node.firstanswer import first_answer

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Silent:
    """A box and its guest, of which nothing is heard."""

    def __init__(self, *, ended: bool) -> None:
        self._ended = ended

    async def wait_exited(self) -> None:
        if not self._ended:
            await asyncio.Event().wait()

    def console(self) -> str:
        return "what it said last"

    def hang_up(self) -> None:
        """Nobody is being talked to."""

    async def call(self, op: str, params: Any = None) -> None:
        await asyncio.sleep(0)
        raise GuestFailed(f"no answer to {op}", code="guest_unreachable")


@pytest.mark.parametrize("ended", [True, False])
async def test_a_guest_that_never_answers_is_a_typed_error(ended: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BOOT_S_MAX", 0.05 if not ended else 30.0)
    silent: Any = Silent(ended=ended)
    with pytest.raises(AtollError) as caught:
        await first_answer(silent, silent)
    assert caught.value.code == "start_failed"
    assert "what it said last" in str(caught.value.detail)
    assert ("ended" in caught.value.message) is ended
