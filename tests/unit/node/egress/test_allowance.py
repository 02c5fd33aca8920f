"""What the audit log is told of a sandbox that does much."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from atoll.model import limits
from atoll.node.egress.allowance import Allowance
from atoll.wire.network import NetworkEvent

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
Told = tuple[str, str, int]


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "NETWORK_REPORTS_PER_MINUTE", 3)
    monkeypatch.setattr(limits, "LOOKUP_REPORTS_PER_MINUTE", 2)


def happens(allowance: Allowance, kind: str, at: datetime = NOON, name: str = "") -> list[Told]:
    return facts(allowance.take(NetworkEvent(1, at, kind, name=name)))


def facts(events: list[NetworkEvent]) -> list[Told]:
    return [(event.kind, event.reason, event.dropped) for event in events]


@pytest.mark.parametrize("rare", ["secret_used", "secret_strayed", "ask", "lookup"])
@pytest.mark.parametrize("flood", ["connection", "secret_used", "lookup"])
def test_what_is_done_all_the_time_hides_nothing_that_is_done_once(flood: str, rare: str) -> None:
    allowance = Allowance()
    for number in range(1000):
        happens(allowance, flood, name=f"n{number}.test")
    expected = [] if rare == flood else [(rare, "", 0)]
    assert happens(allowance, rare, name="rare.test") == expected


def test_that_there_is_more_is_told_at_once_and_how_much_when_the_minute_is_over() -> None:
    allowance = Allowance()
    told = [happens(allowance, "connection") for _ in range(10)]
    more = ("limit", "reports_per_minute: connection", 0)
    assert told == [[("connection", "", 0)]] * 3 + [[more]] + [[]] * 6
    assert facts(allowance.settle(1, NOON + timedelta(seconds=59))) == []
    later = NOON + timedelta(minutes=1)
    assert happens(allowance, "ask", later) == [("limit", "reports_per_minute: connection", 7), ("ask", "", 0)]
    assert happens(allowance, "connection", later) == [("connection", "", 0)]
    assert facts(allowance.settle(1, later + timedelta(minutes=5))) == [], "nothing was dropped since"


def test_what_was_dropped_is_told_at_the_end_too() -> None:
    allowance = Allowance()
    for kind in ("connection", "secret_used") * 5:
        happens(allowance, kind)
    assert facts(allowance.settle(1, NOON, ended=True)) == [
        ("limit", "reports_per_minute: connection", 2),
        ("limit", "reports_per_minute: secret_used", 2),
    ]


def test_a_name_that_was_told_of_is_not_counted_again() -> None:
    allowance = Allowance()
    told = [happens(allowance, "lookup", name="a.test") for _ in range(10)]
    assert told == [[("lookup", "", 0)]] + [[]] * 9
    assert facts(allowance.settle(1, NOON, ended=True)) == []
