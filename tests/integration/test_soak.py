"""The long runs of `make soak`, short: what they would find in an hour because it happens each time is found here."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from atoll.testing import soak
from atoll.testing.server import Server

pytestmark = pytest.mark.real

RUNS = [
    pytest.param(partial(soak.flat, warm_up=2, growth_mib_max=8.0), 8, id="flat"),
    pytest.param(soak.survive, 2, id="survive"),
    pytest.param(soak.agree, 2, id="agree"),
]


@pytest.mark.parametrize(("run", "rounds"), RUNS)
def test_nothing_grows_is_lost_or_disagrees(
    make_server: Callable[..., Server], run: Callable[[Server, int], list[str]], rounds: int
) -> None:
    assert run(make_server(), rounds) == []
