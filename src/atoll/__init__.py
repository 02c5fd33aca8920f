"""Atoll: an isolated Linux computer for an agent, in milliseconds, on your own machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from atoll.client import AsyncSandbox as AsyncSandbox
    from atoll.client import AsyncSecrets as AsyncSecrets
    from atoll.client import AsyncSnapshot as AsyncSnapshot
    from atoll.client import AsyncVolume as AsyncVolume
    from atoll.client import Sandbox as Sandbox
    from atoll.client import Secrets as Secrets
    from atoll.client import Snapshot as Snapshot
    from atoll.client import Volume as Volume
    from atoll.client import async_evaluate as async_evaluate
    from atoll.client import evaluate as evaluate
    from atoll.model.errors import AtollError as AtollError

__all__ = [
    "AsyncSandbox",
    "AsyncSecrets",
    "AsyncSnapshot",
    "AsyncVolume",
    "AtollError",
    "Sandbox",
    "Secrets",
    "Snapshot",
    "Volume",
    "__version__",
    "async_evaluate",
    "evaluate",
]


def __getattr__(name: str) -> object:
    # Imported when asked for: the guest and `atoll --help` share this package and must not pay for an HTTP client.
    if name == "AtollError":
        from atoll.model.errors import AtollError

        return AtollError
    if name in __all__:
        from atoll import client

        return getattr(client, name)
    raise AttributeError(f"module 'atoll' has no attribute {name!r}")
