"""E2B's own clients, unmodified, in environments of their own: installed once, and run on a program of cases."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
INSTALL = HERE.parents[2] / "tools" / "compat_clients.sh"
INSTALL_S_MAX = 300
RUN_S_MAX = 110

WHOLE = os.environ.get("ATOLL_TEST_COMPAT") == "all"
"""`make test-compat` tries every set of clients in every mode; `make test` the newest of each language in one."""


@dataclass(frozen=True)
class Run:
    """What became of each case (`ok`, or what went wrong), and which options each method was called with."""

    outcomes: dict[str, str]
    called: dict[str, list[str]]


@dataclass(frozen=True)
class Client:
    """One language, and which pins."""

    language: str
    age: str

    @property
    def pins(self) -> Path:
        return HERE / (f"requirements-{self.age}.txt" if self.language == "python" else f"node-{self.age}")

    @functools.cached_property
    def folder(self) -> Path:
        """Where it is installed; the first time it is."""
        done = subprocess.run(
            [INSTALL, self.language, self.pins], capture_output=True, text=True, timeout=INSTALL_S_MAX, check=False
        )
        assert done.returncode == 0, done.stderr
        return Path(done.stdout.strip())

    def run(self, program: str, environment: dict[str, str]) -> Run:
        """The program with this client, to its end."""
        done = subprocess.run(
            self._argv(program), capture_output=True, text=True, timeout=RUN_S_MAX, env=environment, check=False
        )
        lines = [json.loads(line[2:]) for line in done.stdout.splitlines() if line.startswith("@ ")]
        assert lines, f"{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
        called = [json.loads(line[2:]) for line in done.stdout.splitlines() if line.startswith("% ")]
        return Run({line["case"]: line["outcome"] for line in lines}, dict(called[-1]) if called else {})

    def _argv(self, program: str) -> list[str]:
        name, *words = program.split()
        if self.language == "python":
            return [str(self.folder / "bin" / "python"), str(PROGRAMS / name), *words]
        return ["node", str(PROGRAMS / "run.mjs"), str(self.folder), str(PROGRAMS / name)]


_CASE = re.compile(r"^(?:async def|def|export async function) (case_\w+)", re.MULTILINE)


def cases_of(program: str) -> list[str]:
    """The names of the cases in a program, without running it; words may follow its name."""
    return _CASE.findall((PROGRAMS / program.split()[0]).read_text())


@functools.cache
def run_once(client: Client, program: str, environment: tuple[tuple[str, str], ...]) -> Run:
    """A program with a client on a server: once, however many tests ask for what became of it."""
    return client.run(program, dict(environment))
