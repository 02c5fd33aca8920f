"""The description of the API: complete, consistent, and the one that is checked in."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from atoll import __version__
from atoll.api.app import endpoints
from atoll.api.openapi import document

CHECKED_IN = Path(__file__).parents[3] / "openapi" / "v1.json"


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for item in value.values():
            yield from references(item)
    elif isinstance(value, list):
        for item in value:
            yield from references(item)


def test_the_checked_in_description_is_this_one() -> None:
    assert json.loads(CHECKED_IN.read_text()) == json.loads(json.dumps(document(endpoints(), __version__)))


def test_every_reference_leads_somewhere() -> None:
    described = document(endpoints(), __version__)
    for reference in references(described):
        assert reference.rpartition("/")[2] in described["components"]["schemas"], reference


def test_every_operation_has_its_own_id_and_all_parameters_of_its_path() -> None:
    seen = set()
    for path, operations in document(endpoints(), __version__)["paths"].items():
        for operation in operations.values():
            assert operation["operationId"] not in seen
            seen.add(operation["operationId"])
            named = {item["name"] for item in operation["parameters"] if item["in"] == "path"}
            assert named == set(re.findall(r"\{(\w+)\}", path))
            assert "500" in operation["responses"]


def answers() -> dict[tuple[str, str], tuple[dict[str, Any], set[str]]]:
    """Each operation, with the statuses that it may answer."""
    paths = document(endpoints(), __version__)["paths"]
    return {
        (method.upper(), path): (operation, set(operation["responses"]))
        for path, operations in paths.items()
        for method, operation in operations.items()
    }


def test_what_every_caller_may_hear_is_described() -> None:
    """No key, no right, too fast; and of what was sent, that it does not fit or is too large."""
    for place, (operation, told) in answers().items():
        with_key = operation.get("security") != []
        assert not with_key or {"401", "403", "429"} <= told, place
        assert "application/json" not in operation.get("requestBody", {}).get("content", {}) or {"400", "413"} <= told
        assert all(item["in"] == "path" for item in operation["parameters"]) or "400" in told, place


def test_what_can_go_wrong_inside_is_described() -> None:
    """A sandbox may have to wake up; and programs and their input have time limits of their own."""
    inside = "/v1/sandboxes/{sandbox}"
    described = answers()
    assert all(
        {"400", "404", "409", "503"} <= told for _, told in described.values() if "502" in told and "404" in told
    )
    for name in ("processes", "processes/{process}/stdin", "terminals", "shells", "contexts", "git/clone"):
        assert "504" in described["POST", f"{inside}/{name}"][1], name
    for name in ("git/log", "files", "processes", "files/archive"):
        assert "413" in described["GET", f"{inside}/{name}"][1], name
