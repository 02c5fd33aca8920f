"""Every promise names what holds it, and what it names exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SPECIFICATION = ROOT / "docs" / "SPECIFICATION.md"

_TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
_MAKE = re.compile(r"`make (?:check|demo)`")
_BENCH = re.compile(r"`tools/bench\.py (\w+)`")
_SOAK = re.compile(r"`tools/soak\.py (\w+)`")


def promises() -> list[tuple[str, str]]:
    rows = [line.strip("| ").split(" | ") for line in SPECIFICATION.read_text().splitlines() if line.startswith("| ")]
    assert all(len(row) == 2 for row in rows)
    return [(row[0], row[1]) for row in rows if row != ["promise", "held by"]]


@pytest.mark.parametrize(("promise", "holders"), promises())
def test_every_promise_has_a_holder_or_says_pending(promise: str, holders: str) -> None:
    left = _SOAK.sub("", _MAKE.sub("", _BENCH.sub("", _TEST.sub("", holders)))).strip()
    assert left in ("", "pending"), f"{promise}: {left!r} is neither a test nor a measurement"
    assert holders.strip()


@pytest.mark.parametrize(("path", "name"), sorted(set(_TEST.findall(SPECIFICATION.read_text()))))
def test_every_named_test_exists(path: str, name: str) -> None:
    assert (ROOT / path).exists(), path
    nodes = ast.walk(ast.parse((ROOT / path).read_text()))
    assert any(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name for node in nodes)


@pytest.mark.parametrize("name", sorted(set(_BENCH.findall(SPECIFICATION.read_text()))))
def test_every_named_measurement_exists(name: str) -> None:
    bench = ROOT / "tools" / "bench.py"
    assert bench.exists()
    words = {node.value for node in ast.walk(ast.parse(bench.read_text())) if isinstance(node, ast.Constant)}
    assert name in words, f"tools/bench.py does not know {name!r}"


@pytest.mark.parametrize("name", sorted(set(_SOAK.findall(SPECIFICATION.read_text()))))
def test_every_named_long_run_exists(name: str) -> None:
    tool = ast.parse((ROOT / "tools" / "soak.py").read_text())
    words = {node.value for node in ast.walk(tool) if isinstance(node, ast.Constant)}
    assert name in words, f"tools/soak.py does not know {name!r}"
