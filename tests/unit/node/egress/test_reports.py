"""Reports of all sandboxes on their way to the audit log."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

import pytest

from atoll.model import limits
from atoll.node.egress.reports import Reports
from atoll.wire.network import NetworkEvent

AT = datetime(2026, 1, 1, tzinfo=UTC)


def event(number: int, kind: str = "connection") -> NetworkEvent:
    return NetworkEvent(number, AT, kind)


def all_of(reports: Reports) -> list[tuple[str, NetworkEvent]]:
    return [reports.take() for _ in iter(lambda: len(reports), 0)]


def test_sandboxes_take_turns_and_questions_go_first() -> None:
    reports = Reports()
    for number in range(3):
        reports.add("busy", event(number))
    reports.add("quiet", event(7))
    reports.add("asking", event(8))
    reports.add("asking", event(9, "ask"))
    told = [(sandbox_id, found.number) for sandbox_id, found in all_of(reports)]
    assert told == [("asking", 9), ("busy", 0), ("quiet", 7), ("asking", 8), ("busy", 1), ("busy", 2)]
    with pytest.raises(IndexError):
        reports.take()


def test_those_that_do_much_lose_their_own_and_are_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bursts of two sandboxes, while nobody takes anything, push out neither what others did nor their questions."""
    monkeypatch.setattr(limits, "NETWORK_REPORTS_WAITING_MAX", 100)
    reports = Reports()
    for number in range(3):
        reports.add("quiet", event(number))
    reports.add("asking", event(0, "ask"))
    for number in range(600):
        reports.add("loud", event(number))
        reports.add("louder", event(number))
    reports.add("late", event(0))
    assert len(reports) == 100
    told = all_of(reports)
    counts = Counter((sandbox_id, found.kind) for sandbox_id, found in told)
    assert counts["quiet", "connection"] == 3
    assert counts["late", "connection"] == 1
    assert counts["asking", "ask"] == 1
    assert abs(counts["loud", "connection"] - counts["louder", "connection"]) <= 2
    assert {key for key in counts if key[1] == "limit"} == {("loud", "limit"), ("louder", "limit")}
    assert [found.reason for _, found in told if found.kind == "limit"] == ["reports_lost"] * 2
    assert [found.number for sandbox_id, found in told if sandbox_id == "loud"][-1] == 599, "the newest are kept"
    lost = {sandbox_id: found.dropped for sandbox_id, found in told if found.kind == "limit"}
    assert lost == {name: 600 - counts[name, "connection"] for name in ("loud", "louder")}


def test_questions_without_end_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "NETWORK_REPORTS_WAITING_MAX", 10)
    reports = Reports()
    reports.add("other", event(0, "ask"))
    for number in range(50):
        reports.add("asking", event(number, "ask"))
    told = all_of(reports)
    assert ("other", event(0, "ask")) in told
    assert len(told) == 11, "ten, and that some were lost"
