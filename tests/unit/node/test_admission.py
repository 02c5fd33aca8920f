"""Admission refuses what cannot fit, and says whether to wait or to ask for less."""

from __future__ import annotations

import pytest

from atoll.model import limits
from atoll.model.errors import AtollError, InvalidArgument, Unavailable
from atoll.model.resources import Resources
from atoll.node import admission
from atoll.node.admission import Memory

HOST = Memory(total=16 * limits.GIB, available=8 * limits.GIB)
WANTED = Resources(memory_bytes=limits.GIB)


def refusal(
    wanted: Resources = WANTED,
    *,
    memory: Memory = HOST,
    promised_bytes: int = 0,
    sandboxes: int = 0,
    waits: bool = False,
) -> AtollError | None:
    return admission.refusal(
        wanted, memory=memory, promised_bytes=promised_bytes, sandboxes=sandboxes, overcommit=2.0, waits=waits
    )


def test_what_fits_is_admitted() -> None:
    assert refusal() is None


def test_more_than_the_machine_has_is_the_callers_mistake() -> None:
    error = refusal(Resources(memory_bytes=17 * limits.GIB))
    assert isinstance(error, InvalidArgument)
    assert error.code == "exceeds_node"


@pytest.mark.parametrize(
    ("memory", "promised_bytes", "sandboxes"),
    [
        (HOST, 31 * limits.GIB + limits.GIB, 0),
        (Memory(16 * limits.GIB, limits.MEMORY_RESERVE_BYTES), 0, 0),
        (HOST, 0, limits.SANDBOXES_PER_NODE_MAX),
    ],
)
def test_a_full_machine_says_try_again(memory: Memory, promised_bytes: int, sandboxes: int) -> None:
    error = refusal(memory=memory, promised_bytes=promised_bytes, sandboxes=sandboxes)
    assert isinstance(error, Unavailable)
    assert error.hint


def test_one_that_waits_in_the_pool_has_its_start_behind_it() -> None:
    """It is not refused for memory that it has already; what the host keeps for itself is kept all the same."""
    scarce = Memory(16 * limits.GIB, limits.MEMORY_RESERVE_BYTES + limits.MIB)
    assert refusal(memory=scarce) is not None
    assert refusal(memory=scarce, waits=True) is None
    assert refusal(memory=Memory(16 * limits.GIB, limits.MEMORY_RESERVE_BYTES - 1), waits=True) is not None


def test_the_host_has_memory() -> None:
    memory = admission.host_memory()
    assert 0 < memory.available <= memory.total
    assert admission.host_swap_bytes() >= 0
