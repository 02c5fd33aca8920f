"""A template: what a sandbox starts from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Template:
    """A disk, and how a process on it starts when its caller says nothing else."""

    name: str
    key: str
    """A hash of all that went into the disk; a template with the same key is the same template."""
    user: str = "user"
    workdir: str = "/home/user"
    env: Mapping[str, str] = field(default_factory=dict)
    warm: tuple[str, ...] = ()
    """The languages whose interpreters run already in what waits for an owner; without any the usual ones, where there
    is IPython: Python and JavaScript."""
