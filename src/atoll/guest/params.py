"""Parameters of a request, read one by one: right type and within bounds, or a clear refusal."""

from __future__ import annotations

import os
from typing import Any

from atoll.guest.failure import Refused
from atoll.model import limits

Params = dict[str, Any]
_REQUIRED = object()


def _get(params: Params, name: str, default: Any) -> Any:
    value = params.get(name)
    if value is None:
        if default is _REQUIRED:
            raise Refused("invalid_argument", f"{name} is missing")
        return default
    return value


def text(params: Params, name: str, default: Any = _REQUIRED, *, chars_max: int = limits.ARGV_BYTES_MAX) -> str:
    value = _get(params, name, default)
    if not isinstance(value, str):
        raise Refused("invalid_argument", f"{name} must be text")
    if len(value) > chars_max:
        raise Refused("invalid_argument", f"{name} is longer than {chars_max} characters")
    if "\0" in value:
        raise Refused("invalid_argument", f"{name} holds a NUL byte")
    return value


def integer(params: Params, name: str, default: Any = _REQUIRED, *, low: int = 0, high: int = 2**63 - 1) -> int:
    value = _get(params, name, default)
    if isinstance(value, bool) or not isinstance(value, int):
        raise Refused("invalid_argument", f"{name} must be a whole number")
    if not low <= value <= high:
        raise Refused("invalid_argument", f"{name} must be between {low} and {high}")
    return value


def optional_integer(params: Params, name: str, *, low: int = 0, high: int = 2**63 - 1) -> int | None:
    return None if params.get(name) is None else integer(params, name, low=low, high=high)


def seconds(params: Params, name: str, default: float | None = None) -> float | None:
    value = _get(params, name, default)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= limits.TIMEOUT_S_MAX:
        raise Refused("invalid_argument", f"{name} must be between 0 and {limits.TIMEOUT_S_MAX} seconds")
    return float(value)


def flag(params: Params, name: str, default: bool = False) -> bool:
    value = _get(params, name, default)
    if not isinstance(value, bool):
        raise Refused("invalid_argument", f"{name} must be true or false")
    return value


def record(params: Params, name: str) -> Params:
    value = _get(params, name, {})
    if not isinstance(value, dict):
        raise Refused("invalid_argument", f"{name} must be an object")
    return value


def texts(params: Params, name: str) -> list[str]:
    value = _get(params, name, [])
    if not isinstance(value, list) or len(value) > limits.ARGV_ENTRIES_MAX:
        raise Refused("invalid_argument", f"{name} must be a list of at most {limits.ARGV_ENTRIES_MAX} texts")
    total = 0
    for item in value:
        if not isinstance(item, str) or "\0" in item:
            raise Refused("invalid_argument", f"{name} must hold texts without NUL bytes")
        total += len(item)
    if total > limits.ARGV_BYTES_MAX:
        raise Refused("too_large", f"{name} is longer than {limits.ARGV_BYTES_MAX} bytes together")
    return value


def environment(params: Params, name: str = "env") -> dict[str, str]:
    value = record(params, name)
    if len(value) > limits.ENV_ENTRIES_MAX:
        raise Refused("too_large", f"{name} has more than {limits.ENV_ENTRIES_MAX} entries")
    total = 0
    for key, item in value.items():
        if not key or "=" in key or "\0" in key:
            raise Refused("invalid_argument", f"{name} has a name that no variable can have")
        if not isinstance(item, str) or "\0" in item:
            raise Refused("invalid_argument", f"{name}[{key}] must be text without NUL bytes")
        total += len(key) + len(item)
    if total > limits.ENV_BYTES_MAX:
        raise Refused("too_large", f"{name} is longer than {limits.ENV_BYTES_MAX} bytes together")
    return value


def path(params: Params, home: str, name: str = "path", default: Any = _REQUIRED) -> str:
    """An absolute path: relative ones start at the user's home, and so does `~`."""
    return resolve(text(params, name, default), home, name)


def resolve(value: str, home: str, name: str = "path") -> str:
    if not value:
        raise Refused("invalid_argument", f"{name} is empty")
    if value == "~" or value.startswith("~/"):
        value = home + value[1:]
    try:
        length = len(os.fsencode(value))
    except UnicodeError:
        raise Refused("invalid_argument", f"{name} cannot be a name on this system") from None
    if length >= limits.PATH_BYTES_MAX or any(len(os.fsencode(part)) > 255 for part in value.split("/")):
        raise Refused("invalid_argument", f"{name} is too long")
    return os.path.join(home, value)
