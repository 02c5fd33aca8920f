"""Notes which public methods of the Python packages a program calls itself, and which of their options it gives.

The packages stay as they are: the interpreter tells of each call that begins, and those of interest are looked at.
Run alone it tells what there is to be called, so that a test can compare the two.
"""

from __future__ import annotations

import dataclasses
import dis
import functools
import inspect
import json
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import e2b
import e2b_code_interpreter as code_interpreter
from e2b.connection_config import ApiParams

HERE = str(Path(__file__).parent)
HANDED_OUT = ("commands", "pty", "files", "git")
NESTED = ("network", "lifecycle", "query", "on_timeout")
"""Arguments whose own fields are options."""

LIFECYCLE = {"lifecycle.on_timeout", "lifecycle.auto_resume", "on_timeout.action", "on_timeout.mode"}

Calls = dict[str, set[str]]


def classes() -> Iterator[tuple[str, str, Any]]:
    """Flavour, part and class of all that a user calls."""
    for flavour, prefix in (("sync", ""), ("async", "Async")):
        sandbox = getattr(code_interpreter, f"{prefix}Sandbox")
        yield flavour, "Sandbox", sandbox
        for name in filter(functools.partial(hasattr, sandbox), HANDED_OUT):
            yield flavour, name, typing.get_type_hints(getattr(sandbox, name).fget)["return"]
        for part in ("CommandHandle", "CommandInputHandle", "WatchHandle", "Volume", "Secret", "Template"):
            if hasattr(e2b, prefix + part):
                yield flavour, part, getattr(e2b, prefix + part)


def functions(owner: Any, name: str) -> Iterator[tuple[str, Any]]:
    """What runs when this attribute is used, as a method of a thing or of its class."""
    found = inspect.getattr_static(owner, name)
    if hasattr(found, "class_method_name"):  # one name for both
        yield name, found.method
        yield f"{name} of the class", _plain(inspect.getattr_static(owner, found.class_method_name))
    elif isinstance(found, property):
        yield name, found.fget
    elif callable(_plain(found)):
        yield name, inspect.unwrap(_plain(found))
    else:
        yield from ((kind, _plain(value)) for kind, value in _variants(owner, name))


def _plain(found: Any) -> Any:
    return getattr(found, "__func__", found)


def _variants(owner: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Volumes keep the two forms of a method under names of their own."""
    for prefix, kind in (("_class_", f"{name} of the class"), ("_instance_", name)):
        if hasattr(owner, prefix + name):
            yield kind, inspect.getattr_static(owner, prefix + name)


def known() -> Iterator[tuple[str, str, Any]]:
    for flavour, part, owner in classes():
        for name in dir(owner):
            if not name.startswith("_"):
                for kind, function in functions(owner, name):
                    if hasattr(function, "__code__"):
                        yield flavour, f"{part}.{kind}", function


def options_of(function: Any) -> set[str]:
    parameters = inspect.signature(function).parameters.values()
    return {one.name for one in parameters if one.default is not one.empty} - {"request_timeout"}


def fields_of(name: str) -> set[str]:
    """Of what a network is made; older packages have none."""
    return {f"network.{field}" for field in inspect.get_annotations(getattr(e2b, name, object))}


def callable_things() -> dict[str, list[str]]:
    """Every method with its options; what belongs to the connection, and fields of arguments, once for each flavour."""
    found: Calls = {}
    for flavour, name, function in known():
        found.setdefault(f"{flavour} {name}", set()).update(options_of(function))
    for flavour in ("sync", "async"):
        found[f"{flavour} connection"] = set(ApiParams.__annotations__)
        found[f"{flavour} Sandbox.create"] |= fields_of("SandboxNetworkOpts")
        if "lifecycle" in found[f"{flavour} Sandbox.create"]:
            found[f"{flavour} Sandbox.create"] |= LIFECYCLE
        if f"{flavour} Sandbox.update_network" in found:
            found[f"{flavour} Sandbox.update_network"] |= fields_of("SandboxNetworkUpdate")
        found[f"{flavour} Sandbox.list"] |= {f"query.{field.name}" for field in dataclasses.fields(e2b.SandboxQuery)}
    return {name: sorted(options) for name, options in sorted(found.items())}


class Watch:
    """Listens from `begin` on; `seen` is what was called by a file of this folder."""

    def __init__(self) -> None:
        self.seen: Calls = {}
        self._functions: dict[CodeType, list[tuple[str, str, Any]]] = {}
        for flavour, name, function in known():
            self._functions.setdefault(function.__code__, []).append((flavour, name, function))
        self._begins = {code: _entry_of(code) for code in self._functions}

    def begin(self) -> None:
        sys.setprofile(self._on_event)

    def _on_event(self, frame: FrameType, event: str, argument: Any) -> None:
        if event != "call" or frame.f_code not in self._functions or frame.f_lasti != self._begins[frame.f_code]:
            return
        if not _by_the_program(frame):
            return
        for flavour, name, function in self._functions[frame.f_code]:
            self._note(flavour, name, inspect.signature(function), dict(frame.f_locals))

    def _note(self, flavour: str, name: str, signature: inspect.Signature, given: dict[str, Any]) -> None:
        calls = self.seen.setdefault(f"{flavour} {name}", set())
        for parameter in signature.parameters.values():
            value = given.get(parameter.name)
            if parameter.kind is parameter.VAR_KEYWORD:
                self.seen.setdefault(f"{flavour} connection", set()).update(value or ())
            elif parameter.default is not parameter.empty and value is not parameter.default:
                calls.add(parameter.name)
            calls.update(_fields(parameter.name, value))
            if parameter.name == "request_timeout" and value is not None:
                self.seen.setdefault(f"{flavour} connection", set()).add("request_timeout")


def _fields(name: str, value: Any) -> Iterator[str]:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        value = {field: one for field, one in value.items() if one is not None}
    if name in NESTED and isinstance(value, dict):
        for field, one in value.items():
            yield f"{name}.{field}"
            yield from _fields(field, one)


def _entry_of(code: CodeType) -> int:
    """Where a call begins: a coroutine that goes on after a wait is no new call."""
    return next(step.offset for step in dis.get_instructions(code) if step.opname == "RESUME")


def _by_the_program(frame: FrameType) -> bool:
    caller = frame.f_back
    while caller is not None and caller.f_code.co_name == "_wrapper":  # picks the form of a method
        caller = caller.f_back
    return caller is not None and caller.f_code.co_filename.startswith(HERE)


if __name__ == "__main__":
    print(json.dumps(callable_things()))
