"""Histories that Hypothesis chooses, against the model, on a real server with a pool; more of them in `make soak`."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from atoll.testing.server import Server
from tests.simulation.histories import Histories, World
from tests.simulation.real_world import RealWorld

pytestmark = pytest.mark.real

HISTORIES = int(os.environ.get("ATOLL_REAL_HISTORIES", "2"))


@pytest.mark.slow
@pytest.mark.timeout(60 + 60 * HISTORIES)
def test_a_real_server_does_what_the_model_says(make_server: Callable[..., Server]) -> None:
    server = make_server(ATOLL_WARM_SIZE="1")

    class RealHistories(Histories):
        def open_world(self) -> World:
            return RealWorld(server)

    run_state_machine_as_test(
        RealHistories,
        settings=settings(
            max_examples=HISTORIES,
            stateful_step_count=6,
            deadline=None,
            derandomize="ATOLL_REAL_HISTORIES" not in os.environ,
            database=None,
            phases=(Phase.generate,),
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
