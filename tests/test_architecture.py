"""Rules about the code that no linter knows: what may be imported where, and how large things may grow."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "atoll"
GENERATED = SOURCE / "client" / "_sync"

STANDARD_LIBRARY_ONLY = ["model", "guest", "wire/framing.py", "wire/guest.py", "wire/__init__.py", "__init__.py"]
VAGUE = re.compile(r"(^|_)(utils?|helpers?|common|misc|manager|factory|stuff)(_|$)")
FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 500


def modules() -> Iterator[Path]:
    return (path for path in SOURCE.rglob("*.py") if GENERATED not in path.parents)


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module or ""


@pytest.mark.parametrize("part", STANDARD_LIBRARY_ONLY)
def test_standard_library_only(part: str) -> None:
    """The guest and what it shares with the server need nothing that an interpreter does not bring."""
    path = SOURCE / part
    for file in path.rglob("*.py") if path.is_dir() else [path]:
        if file.parent.name == "runners":
            continue  # these run on the template's own interpreter, with what the template has
        for name in imported(ast.parse(file.read_text())):
            top = name.partition(".")[0]
            assert top in sys.stdlib_module_names or top == "atoll", f"{file} imports {name}"


def test_every_module_says_what_it_is_for() -> None:
    for path in modules():
        text = path.read_text()
        if path.name == "__init__.py" and not text.strip():
            continue
        if "migrations" in path.parts:
            continue
        assert ast.get_docstring(ast.parse(text)), f"{path} has no docstring"


def test_files_and_functions_stay_small() -> None:
    for path in modules():
        text = path.read_text()
        assert len(text.splitlines()) <= FILE_LINES_MAX, f"{path} is too long: split it by noun"
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                assert lines <= FUNCTION_LINES_MAX, f"{path}:{node.lineno} {node.name} has {lines} lines"


def test_names_say_something() -> None:
    for path in modules():
        assert not any(VAGUE.search(part) for part in path.relative_to(SOURCE).with_suffix("").parts), path


def test_unit_tests_mirror_the_source() -> None:
    """A unit test stands where its module stands, so that whoever changes one finds the other."""
    unit = ROOT / "tests" / "unit"
    for test in unit.rglob("test_*.py"):
        folder = SOURCE / test.parent.relative_to(unit)
        name = test.name.removeprefix("test_")
        candidates = [folder / name, folder / f"_{name}", (folder / name).with_suffix("")]
        assert any(path.exists() for path in candidates), f"{test} tests nothing that exists"
