"""The table of docs/compat/e2b.md names every public method and option of the newest packages, and no others."""

from __future__ import annotations

import functools
import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.compat.e2b.clients import PROGRAMS, Client

PAGE = Path(__file__).parents[3] / "docs" / "compat" / "e2b.md"

Methods = dict[str, list[str]]

# Of each part of the package: under which headings its rows are, and how they begin.
PARTS = {
    "Sandbox": (("Sandbox", "Code interpreter"), ""),
    "commands": (("Commands and terminals",), "commands."),
    "pty": (("Commands and terminals",), "pty."),
    "CommandHandle": (("Commands and terminals",), "CommandHandle."),
    "AsyncCommandInputHandle": (("Commands and terminals",), "AsyncCommandInputHandle."),
    "files": (("Files",), ""),
    "WatchHandle": (("Files",), "WatchHandle."),
    "git": (("Git",), ""),
    "network": (("Network",), ""),
    "query": (("Sandbox",), "list"),
    "connection": (("Connection",), ""),
    "Volume": (("Templates, volumes, secrets, events",), "Volume."),
    "Secret": (("Templates, volumes, secrets, events",), "Secret."),
    "Template": (("Templates, volumes, secrets, events",), "Template."),
}
VALUES = {"default_mcp_template", "default_sandbox_timeout", "default_template", "mcp_port"}  # constants of a class
EVERYWHERE = {"git": {"envs", "user", "cwd", "timeout"}}  # said once, above the rows
FREE = {"get_signature"}  # a function of the package
NO_PACKAGE = re.compile(r"(?:sandbox|template|auth|GET|POST),? ")  # the command line, and what has no method


def rows() -> list[tuple[str, str, set[str]]]:
    """Heading, first name and all words of the first column of each row."""
    found: list[tuple[str, str, set[str]]] = []
    heading = ""
    for line in PAGE.read_text().splitlines():
        heading = line.removeprefix("### ") if line.startswith("#") else heading
        if line.startswith("| `"):
            cell = line.split("|")[1].strip().strip("`")
            found.append((heading, cell, set(re.findall(r"\w+", cell))))
    return found


def words_of(part: str) -> list[set[str]]:
    """The words of each row of one part of the package."""
    headings, begin = PARTS[part]
    others = [other for known, other in PARTS.values() if known == headings and other and not begin]
    return [
        words
        for heading, cell, words in rows()
        if heading in headings and cell.startswith(begin) and not any(cell.startswith(other) for other in others)
    ]


@functools.cache
def python_surface() -> dict[str, Methods]:
    python = Client("python", "new").folder / "bin" / "python"
    done = subprocess.run([python, PROGRAMS / "surface.py"], capture_output=True, text=True, timeout=60, check=True)
    surface: dict[str, Methods] = json.loads(done.stdout)
    return surface


@pytest.mark.parametrize("part", PARTS)
def test_what_python_has_is_in_the_table(part: str) -> None:
    known = words_of(part)
    missing = []
    for method, options in python_surface()[part].items():
        if method in VALUES:
            continue
        named = set().union(*(words for words in known if method in words))
        missing += [f"{method}({option})" for option in options if option not in named | EVERYWHERE.get(part, set())]
        missing += [] if named else [method]
    assert missing == []


_CLASSES = r"Sandbox|SandboxApi|Commands|Pty|Filesystem|Git|CommandHandle|WatchHandle|Volume|Secret"
_BLOCK = re.compile(
    rf"^(?:declare class|interface|type) (?:{_CLASSES}|\w+Opts|\w+Options)\b[^\n]*\{{\n(.*?)^\}}", re.S | re.M
)
_MEMBER = re.compile(r"^  (?!private|protected|constructor)(?:static |readonly |get )*(\w+)\??[(:<]", re.M)


def javascript_names() -> set[str]:
    """Members of the classes and options of the calls, in Python's spelling."""
    folder = Client("node", "new").folder / "node_modules"
    names: set[str] = set()
    for package in ("e2b", "@e2b/code-interpreter"):
        text = re.sub(r"/\*.*?\*/", "", (folder / package / "dist" / "index.d.ts").read_text(), flags=re.S)
        names.update(name for body in _BLOCK.findall(text) for name in _MEMBER.findall(body))
    return {re.sub(r"(?<=[a-z])([A-Z]+)", r"_\1", name).lower().removesuffix("_ms") for name in names}


def test_what_javascript_has_is_in_the_table() -> None:
    names = javascript_names()
    assert {"create", "run_code", "watch_dir", "keep_memory"} <= names  # the files are read as they are meant
    known = set().union(*(words for _, _, words in rows()))
    assert sorted(name for name in names if name not in known) == []


def test_what_is_in_the_table_exists() -> None:
    there = {word for part in python_surface().values() for name, options in part.items() for word in (name, *options)}
    told = {
        span.partition("(")[0].rpartition(".")[2]
        for line in PAGE.read_text().partition("## Method by method")[2].splitlines()
        if line.startswith("| `") and not NO_PACKAGE.match(line.removeprefix("| `"))
        for span in re.findall(r"`([^`]+)`", line.split("|")[1])
    }
    assert {name.partition("=")[0] for name in told} - there - javascript_names() - FREE == set()
