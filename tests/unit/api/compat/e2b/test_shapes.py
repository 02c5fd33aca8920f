"""Sandboxes in E2B's words: bodies as its clients send them, and answers as they read them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from atoll.api.compat.e2b import shapes
from atoll.api.compat.e2b.shapes import NewSandbox
from atoll.model.errors import InvalidArgument
from atoll.model.lifecycle import State
from atoll.model.resources import Resources
from atoll.model.sandbox import OWN_ID, DeadlineAction, Sandbox
from atoll.model.template import Template
from atoll.wire import codec
from atoll.wire.node import SeriesPoint

MOMENT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
# As e2b 2.63.0 sent it for Sandbox.create(timeout=60, envs=..., metadata=..., lifecycle=..., volume_mounts=...).
RECORDED = b"""{"templateID":"code-interpreter-v1","timeout":60,"autoPause":true,"autoResume":{"enabled":true},
"metadata":{"k v":"x&y"},"envVars":{"A":"1"},"allow_internet_access":true,
"volumeMounts":[{"name":"v","path":"/data"}],"unknown":1}"""


def sandbox(state: State = State.RUNNING) -> Sandbox:
    return Sandbox(
        id="sb1",
        template="code",
        name=None,
        metadata={"a": "b"},
        resources=Resources(),
        state=state,
        created_at=MOMENT,
        started_at=MOMENT,
        deadline_at=MOMENT,
        ended_at=None,
        end_reason=None,
        end_detail="",
    )


def test_a_create_is_understood() -> None:
    spec = shapes.spec_of(codec.decode(RECORDED, NewSandbox))
    assert (spec.template, spec.timeout_s, dict(spec.metadata)) == ("code", 60, {"k v": "x&y"})
    assert spec.env["A"] == "1"
    assert (spec.env["E2B_SANDBOX"], spec.env["E2B_SANDBOX_ID"]) == ("true", OWN_ID)
    assert (spec.env["E2B_TEAM_ID"], spec.env["E2B_TEMPLATE_ID"]) == ("default", "code")
    assert (spec.on_deadline, spec.auto_resume) == (DeadlineAction.PAUSE, True)
    assert [(mount.volume, mount.path) for mount in spec.volumes] == [("v", "/data")]


@pytest.mark.parametrize(
    ("asked", "ours"),
    [("base", "base"), ("code-interpreter-v1", "code"), ("team/mine", "mine"), ("mine:default", "mine")],
)
def test_templates_have_their_names(asked: str, ours: str) -> None:
    assert shapes.template_name(asked) == ours


def test_a_sandbox_has_every_field_that_clients_need() -> None:
    made = shapes.created(sandbox(), "token", "traffic", "localhost:7070")
    assert made["sandboxID"] == "sb1"
    assert made["alias"] == "code-interpreter-v1"
    assert made["domain"] == "localhost:7070"
    entry = shapes.listed(sandbox())
    needed = {
        "templateID",
        "sandboxID",
        "clientID",
        "startedAt",
        "endAt",
        "cpuCount",
        "memoryMB",
        "diskSizeMB",
        "state",
    }
    assert needed <= entry.keys()
    assert entry["startedAt"] == "2026-01-02T03:04:05.000Z"


@pytest.mark.parametrize(("state", "word"), [(State.STANDBY, "running"), (State.PAUSED, "paused")])
def test_states_are_two(state: State, word: str) -> None:
    assert shapes.listed(sandbox(state))["state"] == word


def test_filters_are_read_as_clients_encode_them() -> None:
    assert shapes.metadata_of("k%2520v=x%2526y") == {"k v": "x&y"}
    assert shapes.states_of(["paused"]) == shapes.ASLEEP
    assert set(shapes.states_of([])) == {*shapes.ASLEEP, *shapes.AWAKE}
    with pytest.raises(InvalidArgument):
        shapes.states_of(["gone"])
    for limit in ("0", "101", "x", "-1"):
        with pytest.raises(InvalidArgument):
            shapes.page_size(limit)


def test_use_is_what_lies_between_two_looks() -> None:
    points = [SeriesPoint(10, 1.0, 100, 7, 0, 0), SeriesPoint(15, 2.0, 200, 8, 0, 0)]
    (use,) = shapes.uses_of(points)
    shown = shapes.metric(sandbox(), use)
    assert (shown["cpuUsedPct"], shown["memUsed"], shown["diskUsed"], shown["timestampUnix"]) == (20.0, 200, 8, 15)
    assert shapes.in_range(15, "10", "20")
    assert not shapes.in_range(15, "16", "")
    now_s = 1_793_000_000
    assert shapes.in_range(now_s, f"{now_s - 5}000", f"{now_s + 5}000")  # clients of 2025 tell milliseconds
    assert not shapes.in_range(now_s, f"{now_s + 5}000", "")
    with pytest.raises(InvalidArgument):
        shapes.in_range(15, "never", "")


@pytest.mark.parametrize("newest_first", [False, True])
def test_a_page_goes_on_where_the_last_one_ended(newest_first: bool) -> None:
    """Also when the one that it ended with is gone, or several began at the same moment."""
    made = [replace(sandbox(), id=f"sb{number}") for number in (1, 2, 3)]
    made.append(replace(sandbox(), id="sb0", started_at=MOMENT + timedelta(microseconds=1)))
    expected = ["sb0", "sb3", "sb2", "sb1"] if newest_first else ["sb1", "sb2", "sb3", "sb0"]
    left, cursor = list(made), None
    seen: list[str] = []
    while True:
        (found,), cursor = shapes.page_of(left, cursor, 1, newest_first=newest_first)
        seen.append(found.id)
        left.remove(found)
        if cursor is None:
            break
    assert seen == expected
    with pytest.raises(InvalidArgument):
        shapes.page_of(made, "nonsense", 1, newest_first=newest_first)


def test_a_template_has_every_field_and_a_uuid() -> None:
    shown = shapes.template(Template("code", "some-hash"), Resources())
    assert len(shown) == 16
    assert len(shown["buildID"]) == 36
    assert "code-interpreter-v1" in shown["aliases"]
