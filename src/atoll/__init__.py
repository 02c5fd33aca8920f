"""Atoll: an isolated Linux computer for an agent, in milliseconds, on your own machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from atoll.client import AsyncSandbox as AsyncSandbox
    from atoll.client import Sandbox as Sandbox
    from atoll.model.errors import AtollError as AtollError

__all__ = ["AsyncSandbox", "AtollError", "Sandbox", "__version__"]


def __getattr__(name: str) -> object:
    # Imported when asked for: the guest and `atoll --help` share this package and must not pay for an HTTP client.
    if name == "AtollError":
        from atoll.model.errors import AtollError

        return AtollError
    if name in __all__:
        from atoll import client

        return getattr(client, name)
    raise AttributeError(f"module 'atoll' has no attribute {name!r}")
