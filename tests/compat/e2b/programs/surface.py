"""Tells the public methods of the Python packages, and the options of each, as one line of JSON."""

from __future__ import annotations

import dataclasses
import inspect
import json
import typing
from typing import Any

import e2b
from e2b.connection_config import ApiParams
from e2b_code_interpreter import AsyncSandbox, Sandbox


def options_of(method: Any) -> set[str]:
    """What may be left out, but for the time that any request may take and what is said of the connection."""
    known = inspect.signature(method).parameters.values()
    return {one.name for one in known if one.default is not one.empty} - {"request_timeout"}


def methods_of(*classes: Any) -> dict[str, list[str]]:
    found: dict[str, set[str]] = {}
    for one in classes:
        for name in dir(one):
            if name.startswith("_"):
                continue
            value = getattr(one, name)
            found.setdefault(name, set()).update(options_of(value) if callable(value) else ())
    return {name: sorted(options) for name, options in found.items()}


def handed_out(name: str) -> list[Any]:
    """What a sandbox has under this name, in both packages."""
    return [typing.get_type_hints(getattr(one, name).fget)["return"] for one in (Sandbox, AsyncSandbox)]


def fields(*names: str) -> list[str]:
    return sorted({field for name in names for field in typing.get_type_hints(getattr(e2b, name))})


print(
    json.dumps(
        {
            "Sandbox": methods_of(Sandbox, AsyncSandbox),
            "commands": methods_of(*handed_out("commands")),
            "pty": methods_of(*handed_out("pty")),
            "files": methods_of(*handed_out("files")),
            "git": methods_of(*handed_out("git")),
            "CommandHandle": methods_of(e2b.CommandHandle, e2b.AsyncCommandHandle),
            "AsyncCommandInputHandle": methods_of(e2b.AsyncCommandInputHandle),
            "WatchHandle": methods_of(e2b.WatchHandle, e2b.AsyncWatchHandle),
            "Volume": methods_of(e2b.Volume, e2b.AsyncVolume),
            "Secret": methods_of(e2b.Secret, e2b.AsyncSecret),
            "Template": methods_of(e2b.Template, e2b.AsyncTemplate),
            "network": {name: [] for name in fields("SandboxNetworkOpts", "SandboxNetworkUpdate")},
            "query": {field.name: [] for field in dataclasses.fields(e2b.SandboxQuery)},
            "connection": {name: [] for name in typing.get_type_hints(ApiParams)},
        }
    )
)
