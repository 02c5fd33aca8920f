"""`atoll status`: what a person wants to know at a glance."""

from __future__ import annotations

from atoll.cli.status import _lines
from atoll.wire.public import NodeView, StatusView
from atoll.wire.public.nodes import WarmView


def view(**node: object) -> StatusView:
    given = {"warm": {}, "warm_max": 0, **node}
    return StatusView(
        version="1",
        tenant="default",
        key_id="ak",
        scopes=["read"],
        sandboxes={"running": 1, "killed": 0},
        node=NodeView(1, 2**34, 2**33, 2**30, 2**40, 2**39, **given),  # type: ignore[arg-type]
        month_s=90,
        month_money=1.5,
        currency="EUR",
        warnings=[],
    )


def test_a_pool_that_is_off_is_told_from_one_that_is_empty() -> None:
    assert dict(_lines(view()))["pool"] == "off"
    assert dict(_lines(view(warm_max=8)))["pool"] == "empty (at most 8 each)"
    full = view(warm={"base": WarmView(2, 1), "code": WarmView(0, 0)}, warm_max=8)
    assert dict(_lines(full))["pool"] == "base: 2 live, 1 shell; code: 0 live, 0 shells (at most 8 each)"


def test_what_is_used_is_in_words() -> None:
    shown = dict(_lines(view()))
    assert shown["sandboxes"] == "1 running"
    assert shown["memory"] == "8GiB of 16GiB available, 1GiB promised"
    assert shown["month"] == "1m30s used, 1.5000 EUR"
