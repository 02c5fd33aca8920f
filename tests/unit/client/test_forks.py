"""A copy that cannot be made does not take the others along, where their owner says so; and it is always said why."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from atoll.client import Sandbox
from atoll.client._sync import states
from atoll.model.errors import Unavailable
from atoll.wire.public import ForkList, ForkView, Problem, ResourcesView, SandboxView

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
NO_MEMORY = Problem(type="about:blank", title="no memory", status=503, code="no_memory", detail="no memory")


def view(name: str) -> SandboxView:
    limits = ResourcesView(cpu=1, memory_bytes=1, disk_bytes=1, pids=1)
    return SandboxView(
        id=name,
        template="code",
        name=None,
        metadata={},
        resources=limits,
        state="running",
        created_at=MOMENT,
        started_at=MOMENT,
        deadline_at=MOMENT,
        ended_at=None,
        end_reason=None,
        end_detail="",
    )


class Wire:
    """A server that makes some of the copies."""

    def __init__(self, *items: ForkView) -> None:
        self.config: Any = None
        self.killed: list[str] = []
        self._items = list(items)

    def call(self, *_: Any, **__: Any) -> ForkList:
        return ForkList(items=self._items)

    def fetch(self, method: str, path: str) -> None:
        assert method == "DELETE"
        self.killed.append(path.rpartition("/")[2])


@pytest.fixture(autouse=True)
def no_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "Transport", SimpleNamespace(acquire=lambda _: SimpleNamespace()))


def sandbox(wire: Wire) -> Sandbox:
    return Sandbox(wire, view("parent"))  # type: ignore[arg-type]


MADE, FAILED = ForkView(sandbox=view("made")), ForkView(problem=NO_MEMORY)


def test_the_others_live_and_the_problems_are_told() -> None:
    wire = Wire(FAILED, MADE, FAILED)
    copies = sandbox(wire).fork(3, partial=True)
    assert [one.id for one in copies] == ["made"]
    assert [(type(one), one.code) for one in copies.problems] == [(Unavailable, "no_memory")] * 2
    assert not wire.killed


def test_all_or_none_is_the_rule() -> None:
    wire = Wire(MADE, FAILED)
    with pytest.raises(Unavailable):
        sandbox(wire).fork(2)
    assert wire.killed == ["made"]
    with pytest.raises(Unavailable):
        sandbox(Wire(FAILED)).fork(1, partial=True)
    assert sandbox(Wire(MADE)).fork(1).problems == []
