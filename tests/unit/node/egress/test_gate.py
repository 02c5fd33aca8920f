"""The gate of one sandbox: what it tells of what happened, and how it counts."""

from __future__ import annotations

import functools
from datetime import datetime, tzinfo
from ipaddress import IPv4Address

import anyio
import anyio.lowlevel
import pytest

from atoll.model import limits
from atoll.model.policy import Policy, compile_policy
from atoll.node.egress import gate as module
from atoll.node.egress.gate import Flow, Gate
from atoll.wire.network import NetworkEvent, NetworkOrder

pytestmark = pytest.mark.anyio


class _Stopped(datetime):
    @classmethod
    def now(cls, tz: tzinfo | None = None) -> _Stopped:
        return cls(2026, 1, 1, tzinfo=tz)


ADDRESS = IPv4Address("198.51.100.7")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def test_a_flood_is_told_up_to_a_bound_and_that_it_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "NETWORK_REPORTS_PER_MINUTE", 5)
    told: list[NetworkEvent] = []
    gate = Gate("sb1", lambda _, event: told.append(event))
    monkeypatch.setattr(module, "datetime", _Stopped)  # however the clock stands, the flood is in one minute
    for _ in range(100):
        gate.turned_away(ADDRESS, 443, "network_off")
    assert [event.kind for event in told] == ["connection"] * 5 + ["limit"]
    assert gate.status(0).refused_total == 100
    gate.settle()
    assert len(told) == 6, "the minute is not over"
    gate.settle(ended=True)
    assert [(event.reason, event.dropped) for event in told[5:]] == [
        ("reports_per_minute: connection", 0),
        ("reports_per_minute: connection", 95),
    ]


def test_a_refused_name_is_told_once_a_minute_and_names_without_end_hide_no_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "LOOKUP_REPORTS_PER_MINUTE", 3)
    monkeypatch.setattr(module, "datetime", _Stopped)
    told: list[NetworkEvent] = []
    gate = Gate("sb1", lambda _, event: told.append(event))
    for number in range(50):
        for _ in ("A", "AAAA"):
            gate.note("lookup", name=f"n{number}.test", reason="not_listed")
    gate.turned_away(ADDRESS, 443, "network_off")
    assert [event.name or event.kind for event in told] == ["n0.test", "n1.test", "n2.test", "limit", "connection"]
    assert len(gate.status(0).events) == 101


async def test_the_bytes_that_reach_a_cap_do_not_pass() -> None:
    gate = Gate("sb1", lambda *_: None)
    gate.apply(NetworkOrder(compile_policy(Policy(allow=(str(ADDRESS),), bytes_max=10), {})))
    passed: list[int] = []
    with anyio.CancelScope() as scope:
        flow = Flow(ADDRESS, 443, scope, 0.0)
        gate.opened(flow)
        for size in (4, 4, 4, 4):
            await gate.moved(flow, up=size)
            passed.append(size)
    assert passed == [4, 4]
    assert flow.cut_reason == "bytes_cap"


def rated(rate_bytes_per_s: int) -> NetworkOrder:
    return NetworkOrder(compile_policy(Policy(allow=(str(ADDRESS),), rate_bytes_per_s=rate_bytes_per_s), {}))


async def test_a_raised_rate_wakes_tasks_that_wait_and_those_that_end_owe_nothing() -> None:
    """By the first rate it would take a quarter of an hour."""
    gate = Gate("sb1", lambda *_: None)
    gate.apply(rated(1024))
    with anyio.fail_after(5):
        with anyio.CancelScope() as scope:
            flow = Flow(ADDRESS, 443, scope, 0.0)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(functools.partial(gate.moved, flow, up=limits.MIB))
                await anyio.sleep(0.01)
                assert gate.count(flow, up=1) > 900
                gate.apply(rated(100 * limits.MIB))
            assert gate.count(flow, up=1) == 0
            gate.apply(rated(1024))
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(functools.partial(gate.moved, flow, down=limits.MIB))
                await anyio.sleep(0.01)
                tasks.cancel_scope.cancel()
    assert gate.count(flow, up=1) == 0


async def test_small_pieces_that_never_wait_leave_others_their_turn() -> None:
    gate = Gate("sb1", lambda *_: None)
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(other)
        flow = Flow(ADDRESS, 443, tasks.cancel_scope, 0.0)
        for _ in range(800):
            await gate.moved(flow, down=100)
        tasks.cancel_scope.cancel()
    assert turns >= 90
