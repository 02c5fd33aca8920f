"""Where things are on a host: the machine's cache, which all clones and servers share, and one server's data.

What set-up builds lies in the cache under a key of all that went into it. So the place of a thing follows from this
version of Atoll alone: two versions on one machine do not disturb each other, and nothing has to be looked up.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from atoll.model.errors import Unavailable
from atoll.node.install import definitions

CACHE_DEFAULT = Path("/var/cache/atoll")
DATA_DEFAULT = Path("/var/lib/atoll")

_LOADERS = {"x86_64": "ld-linux-x86-64.so.2", "aarch64": "ld-linux-aarch64.so.1"}


def loader_name(machine: str) -> str:
    """The file name of glibc's dynamic loader for a machine as `uname -m` calls it."""
    try:
        return _LOADERS[machine]
    except KeyError:
        raise Unavailable(
            f"Atoll does not run on {machine} processors", code="unsupported_host", hint="use x86_64 or aarch64"
        ) from None


@dataclass(frozen=True, slots=True)
class Layout:
    cache: Path = CACHE_DEFAULT
    data: Path = DATA_DEFAULT
    runsc: Path | None = None  # a runsc that the operator chose
    machine: str = field(default_factory=platform.machine)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Layout:
        """`ATOLL_CACHE`, `ATOLL_DATA` and `ATOLL_RUNSC`, or the places where a Linux machine keeps such things."""
        chosen = environment.get("ATOLL_RUNSC", "")
        return cls(
            cache=Path(environment.get("ATOLL_CACHE") or CACHE_DEFAULT).absolute(),
            data=Path(environment.get("ATOLL_DATA") or DATA_DEFAULT).absolute(),
            runsc=Path(chosen).absolute() if chosen else None,
        )

    def runsc_slot(self) -> Path:
        """Where set-up puts runsc, or a link to one that was on the machine already."""
        return self.cache / "runsc" / definitions.runsc_key(self.machine) / "runsc"

    def runsc_path(self) -> Path:
        """The runsc to run; raises Unavailable before set-up."""
        return _present(self.runsc or self.runsc_slot(), "runsc")

    def runtime_slot(self) -> Path:
        return self.cache / "runtime" / definitions.runtime_key(self.machine)

    def runtime_dir(self) -> Path:
        """The guest's own interpreter, to be mounted read-only into every sandbox; raises Unavailable before set-up."""
        return _present(self.runtime_slot(), "the guest's interpreter")

    def template_archive(self, name: str) -> Path:
        return self.cache / "templates" / f"{name}-{definitions.template_key(name, self.machine)}.tar.zst"

    def work_dir(self) -> Path:
        """Unfinished things; whatever lies here belongs to a run that is under way or was cut short."""
        return self.cache / "work"


def _present(path: Path, what: str) -> Path:
    if not path.exists():
        raise Unavailable(
            f"{what} is not on this host: {path} is missing",
            code="not_set_up",
            hint="run `make setup` or `atoll setup`",
        )
    return path.resolve()
