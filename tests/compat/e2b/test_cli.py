"""E2B's own command line, unmodified, on a real server: every command with every option of its help."""

from __future__ import annotations

import functools
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from tests.compat.e2b import cli, cli_new, cli_old
from tests.compat.e2b.cli import Commands, Shell, called, commands_of
from tests.compat.e2b.test_table import PAGE

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

AGES = {"new": (cli.NEW, "headers_mode", cli_new), "old": (cli.OLD, "domain_mode", cli_old)}
"""Of each age: the command line, how it is pointed at the server (the old one has no other way), and its cases."""

HIDDEN: Commands = {"sandbox spawn": set(), "template build": set()}
"""Old names that the help does not tell any more; they say so themselves."""


def cases(module: ModuleType) -> dict[str, Callable[[Shell], None]]:
    return {name: value for name, value in vars(module).items() if name.startswith("case_")}


@functools.cache
def played(age: str, case: str, environment: tuple[tuple[str, str], ...]) -> tuple[Shell, str]:
    """A case, once however many tests ask for it: who typed what, and what went wrong."""
    client, _, module = AGES[age]
    home = Path(tempfile.mkdtemp(prefix="e2b-cli-"))
    shell = Shell(client, dict(environment), home)
    try:
        cases(module)[case](shell)
    except AssertionError as error:
        return shell, f"{case}: {error}"
    finally:
        shutil.rmtree(home)
    return shell, ""


def play(age: str, case: str, request: pytest.FixtureRequest) -> tuple[Shell, str]:
    environment: dict[str, str] = request.getfixturevalue(AGES[age][1])
    return played(age, case, tuple(sorted(environment.items())))


@pytest.mark.parametrize(("age", "case"), [(age, case) for age in AGES for case in cases(AGES[age][2])])
def test_the_command_line_works(age: str, case: str, request: pytest.FixtureRequest) -> None:
    _, wrong = play(age, case, request)
    assert not wrong, wrong


@functools.cache
def told(age: str) -> Commands:
    """What the help of a command line tells."""
    return commands_of(AGES[age][0])


@pytest.mark.parametrize("age", AGES)
def test_every_command_is_typed_with_every_option(age: str, request: pytest.FixtureRequest) -> None:
    typed: Commands = {}
    for case in cases(AGES[age][2]):
        for name, options in called(play(age, case, request)[0], told(age)).items():
            typed.setdefault(name, set()).update(options)
    assert sorted(told(age).keys() - typed.keys()) == []
    assert [f"{name} {option}" for name in told(age) for option in told(age)[name] - typed[name]] == []


def rows() -> Commands:
    """The commands of the table, with the options that it has for each."""
    found: Commands = {}
    _, _, table = PAGE.read_text().partition("### Command line\n")
    for line in table.partition("\n### ")[0].splitlines():
        spans = re.findall(r"`([^`]+)`", line.split("|")[1]) if line.startswith("| `") else []
        for name in (span for span in spans if not span.startswith("--")):
            found.setdefault(name, set()).update(span for span in spans if span.startswith("--"))
    return found


@pytest.mark.parametrize("age", AGES)
def test_the_table_has_every_command_and_option(age: str) -> None:
    listed = rows()
    assert {"sandbox list", "sandbox snapshot list", "auth login"} <= told(age).keys() | {"sandbox snapshot list"}
    missing = [f"{name} {option}" for name in told(age) for option in told(age)[name] - listed.get(name, set())]
    assert missing + sorted(told(age).keys() - listed.keys()) == []


def test_the_table_has_no_others() -> None:
    known = {name: told("new").get(name, set()) | told("old").get(name, set()) for name in (*told("new"), *told("old"))}
    made_up = [f"{name} {option}" for name, options in rows().items() for option in options - known.get(name, set())]
    assert made_up + sorted(rows().keys() - known.keys() - HIDDEN.keys()) == []
