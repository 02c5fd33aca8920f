"""What happened to sandboxes, in E2B's words."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from atoll.api.compat.e2b import records
from atoll.model.errors import InvalidArgument
from atoll.model.event import Event

ENTRIES = [
    {"level": "info", "message": "sandbox.creating"},
    {"level": "error", "message": "sandbox.failed"},
]


def messages(level: str, search: str) -> list[str]:
    return [entry["message"] for entry in records.chosen(ENTRIES, level, search)]


def test_entries_are_chosen_by_level_and_text() -> None:
    assert messages("", "") == messages("debug", "") == ["sandbox.creating", "sandbox.failed"]
    assert messages("warn", "") == ["sandbox.failed"]
    assert messages("info", "Creat") == ["sandbox.creating"]
    assert messages("error", "creat") == []
    with pytest.raises(InvalidArgument):
        records.chosen(ENTRIES, "loud", "")


def test_types_of_events_are_ours_by_another_name() -> None:
    assert records.actions_of(["sandbox.lifecycle.killed"]) == ("sandbox.killed", "sandbox.failed")
    assert records.kinds_of([]) == list(records.ACTIONS)
    with pytest.raises(InvalidArgument):
        records.kinds_of(["sandbox.lifecycle.born"])


def event(action: str, **detail: str) -> Event:
    return Event(datetime(2026, 1, 2, tzinfo=UTC), "team", "ak1", action, "sb1", detail=detail, number=7)


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        (event("sandbox.creating"), ""),
        (event("sandbox.running", trigger="started"), "sandbox.lifecycle.created"),
        (event("sandbox.failed", trigger="start_failed"), ""),
        (event("sandbox.resuming", trigger="resume_asked"), ""),
        (event("sandbox.running", trigger="resumed"), "sandbox.lifecycle.resumed"),
        (event("sandbox.paused", trigger="resume_failed"), ""),
        (event("sandbox.paused", trigger="paused"), "sandbox.lifecycle.paused"),
        (event("sandbox.running", trigger="pause_failed"), ""),
        (event("sandbox.running", trigger="thawed"), ""),
        (event("sandbox.deadline"), "sandbox.lifecycle.updated"),
        (event("sandbox.failed", trigger="died"), "sandbox.lifecycle.killed"),
        (event("sandbox.killed", trigger="gone"), "sandbox.lifecycle.killed"),
    ],
)
def test_what_came_about_is_told_and_what_was_only_begun_is_not(told: Event, kind: str) -> None:
    assert records.kind_of(told) == kind
    assert (records.lifecycle_event(told) is None) is (not kind)


def test_an_event_says_whose_sandbox_it_was_and_of_what() -> None:
    shown = records.lifecycle_event(event("sandbox.killed", trigger="gone", template="base"))
    assert shown is not None
    assert (shown["sandboxTeamId"], shown["sandboxTemplateId"], len(shown["sandboxBuildId"])) == ("team", "base", 36)
