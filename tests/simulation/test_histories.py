"""Histories that Hypothesis chooses, against the model, on a simulated node; more of them in `make soak`."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.simulation.histories import Histories, World
from tests.simulation.simulated_world import SimulatedWorld, make_database

HISTORIES = int(os.environ.get("ATOLL_HISTORIES", "8"))


def test_a_simulated_server_does_what_the_model_says(tmp_path: Path) -> None:
    database = tmp_path / "db"
    anyio.run(make_database, database)

    class SimulatedHistories(Histories):
        def open_world(self) -> World:
            return SimulatedWorld(database)

    run_state_machine_as_test(
        SimulatedHistories,
        settings=settings(
            max_examples=HISTORIES,
            stateful_step_count=20,
            deadline=None,
            derandomize="ATOLL_HISTORIES"
            not in os.environ,  # the same in every run of the suite; chance is for the soak
            database=None,
            phases=(Phase.generate,),  # what a crash leaves is chance, so a smaller history may differ
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
