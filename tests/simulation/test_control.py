"""Control under virtual time with faults from a seed. A failure names its seed: give it as ATOLL_SIMULATION_SEED."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import anyio
import pytest

from atoll.testing.simulator import Simulation

HISTORIES = int(os.environ.get("ATOLL_SIMULATION_HISTORIES", "8"))  # thousands for a night
STEPS = 25
FIRST = int(os.environ.get("ATOLL_SIMULATION_SEED", "0"))


@pytest.mark.parametrize("seed", range(FIRST, FIRST + HISTORIES))
def test_everything_agrees_after_any_history(seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        try:
            anyio.run(Simulation(seed, Path(folder)).play, STEPS)
        except BaseException:
            print(f"the seed was {seed}")
            raise
