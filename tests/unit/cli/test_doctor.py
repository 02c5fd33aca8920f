"""How `atoll doctor` shows its findings."""

from __future__ import annotations

from atoll.cli.doctor import lines
from atoll.node.findings import Report, fail, ok, warn


def test_one_line_per_check_and_the_hint_below() -> None:
    report = Report((ok("kernel", "6.18"), warn("swap", "none", "add some"), fail("disk pool", "full", "make room")))
    assert lines(report) == [
        "ok    kernel     6.18",
        "warn  swap       none",
        "                 -> add some",
        "FAIL  disk pool  full",
        "                 -> make room",
    ]
    assert not report.healthy


def test_nothing_looked_at_shows_nothing() -> None:
    assert lines(Report(())) == []
