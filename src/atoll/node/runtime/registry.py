"""Drivers by name, found through entry points: ours come in by the same door as a stranger's."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

from atoll.model.errors import InvalidArgument

GROUP = "atoll.drivers"


def load(name: str) -> Any:
    """The driver class that an installed package registered under this name."""
    found = entry_points(group=GROUP, name=name)
    if not found:
        known = ", ".join(sorted(entry.name for entry in entry_points(group=GROUP))) or "none"
        raise InvalidArgument(
            f"there is no runtime named {name!r}",
            code="unknown_runtime",
            hint=f"Installed runtimes: {known}. Install the package that brings it, or choose another.",
        )
    return next(iter(found)).load()
