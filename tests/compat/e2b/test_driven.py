"""Every public method and option of the packages is called by a program of ours on a real server.

What is called is seen while the programs run, so that a row of the table cannot say yes to what nothing tries. Methods
that a package calls of its own accord do not count. An option that every call has counts once for each language.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections import defaultdict

import pytest

from tests.compat.e2b.clients import PROGRAMS, Client, run_once
from tests.compat.e2b.declarations import Declarations
from tests.compat.e2b.runs import NEW, NODE, OLD, OLD_NODE, RUNS

pytestmark = [pytest.mark.real, pytest.mark.timeout(390)]

Calls = dict[str, set[str]]

NO_SERVER = {"debug"}
"""With it a client asks no server for a sandbox: the table says no."""
GIT_OPTIONS = {"envs", "user", "cwd", "timeout", "timeoutMs"}
"""Those of the command that runs git; each method hands them on in one place."""


def called(client: Client, request: pytest.FixtureRequest) -> Calls:
    """What the programs of one client call, and with which options."""
    calls: Calls = defaultdict(set)
    for one, mode, program in RUNS:
        if one == client:
            environment: dict[str, str] = request.getfixturevalue(mode)
            for name, options in run_once(client, program, tuple(sorted(environment.items()))).called.items():
                calls[name].update(options)
    return calls


# The rest of a template is written on the client's side; no server hears of it before it is built.
OF_TEMPLATES = re.compile(
    r"Template\.(?!(static )?(to_?json|to_?dockerfile|exists|alias_?exists|get_?tags|assign_?tags|remove_?tags|build"
    r"|build_?in_?background|get_?build_?status)$)",
    re.IGNORECASE,
)


def missing(wanted: Calls, calls: Calls) -> list[str]:
    """What is never called, and options that are never given."""
    lacking = []
    for name, options in sorted(wanted.items()):
        if OF_TEMPLATES.search(name):
            continue
        if name not in calls:
            lacking.append(name)
        lacking += [f"{name}({option})" for option in sorted(options - NO_SERVER - calls.get(name, set()))]
    return lacking


def once_for_git(calls: Calls) -> Calls:
    """The options that all methods for git have, as of one thing of their own."""
    found: Calls = {}
    for name, options in calls.items():
        flavour, _, method = name.rpartition("git.")
        found[name] = options
        if method != name:
            found[name] = options - GIT_OPTIONS
            found.setdefault(f"{flavour}git", set()).update(options & GIT_OPTIONS)
    return found


@pytest.mark.parametrize("client", [NEW, OLD], ids=lambda client: client.age)
def test_every_method_and_option_of_python_is_called(client: Client, request: pytest.FixtureRequest) -> None:
    python = client.folder / "bin" / "python"
    done = subprocess.run([python, PROGRAMS / "driven.py"], capture_output=True, text=True, timeout=60, check=True)
    wanted = {name: set(options) for name, options in json.loads(done.stdout).items()}
    lacking = missing(once_for_git(wanted), once_for_git(called(client, request)))
    assert not lacking, "\n".join(lacking)


@pytest.mark.parametrize("client", [NODE, OLD_NODE], ids=lambda client: client.age)
def test_every_method_and_option_of_javascript_is_called(client: Client, request: pytest.FixtureRequest) -> None:
    packages = client.folder / "node_modules"
    files = (packages / package / "dist" / "index.d.ts" for package in ("e2b", "@e2b/code-interpreter"))
    declared = Declarations(*files)
    calls = called(client, request)
    calls["connection"] = set().union(*calls.values()) & declared.connection
    wanted = {"connection": declared.connection, **declared.methods()}
    lacking = missing(once_for_git(wanted), once_for_git(calls))
    assert not lacking, "\n".join(lacking)
