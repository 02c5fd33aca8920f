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
