"""What happened to sandboxes, in E2B's words."""

from __future__ import annotations

import pytest

from atoll.api.compat.e2b import records
from atoll.model.errors import InvalidArgument

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
    assert set(records.actions_of([])) == set(records.KINDS)
    with pytest.raises(InvalidArgument):
        records.actions_of(["sandbox.lifecycle.born"])
