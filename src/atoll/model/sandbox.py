"""A sandbox as asked for (SandboxSpec) and as known (Sandbox)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from atoll.model import limits
from atoll.model.errors import InvalidArgument
from atoll.model.lifecycle import EndReason, State
from atoll.model.resources import Resources

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

DEFAULT_TEMPLATE = "code"
DEFAULT_TIMEOUT_S = 300


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """What a caller asks for; `checked` refuses what cannot be granted."""

    template: str = DEFAULT_TEMPLATE
    name: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    resources: Resources = field(default_factory=Resources)
    timeout_s: float = DEFAULT_TIMEOUT_S

    def checked(self) -> SandboxSpec:
        _check_name("template", self.template)
        if self.name is not None:
            _check_name("name", self.name)
        check_metadata(self.metadata)
        check_env(self.env)
        check_timeout(self.timeout_s)
        self.resources.checked()
        return self


@dataclass(frozen=True, slots=True)
class Sandbox:
    """What is known about one sandbox, now or after its end."""

    id: str
    template: str
    name: str | None
    metadata: Mapping[str, str]
    resources: Resources
    state: State
    created_at: datetime
    started_at: datetime | None
    deadline_at: datetime
    ended_at: datetime | None
    end_reason: EndReason | None
    end_detail: str


def check_timeout(timeout_s: float) -> timedelta:
    """A time to live as a duration; refuses the past, nothing, and for ever."""
    if not limits.TIMEOUT_S_MIN <= timeout_s <= limits.TIMEOUT_S_MAX:  # also false for NaN
        raise InvalidArgument(
            f"timeout_s is {timeout_s}, which is not between {limits.TIMEOUT_S_MIN} and {limits.TIMEOUT_S_MAX}",
            code="invalid_timeout",
            hint="The deadline must lie in the future; extend it later if the sandbox is needed for longer.",
        )
    return timedelta(seconds=timeout_s)


def check_metadata(metadata: Mapping[str, str]) -> None:
    if len(metadata) > limits.METADATA_ENTRIES_MAX:
        raise InvalidArgument(f"more than {limits.METADATA_ENTRIES_MAX} metadata entries", code="invalid_metadata")
    for key, value in metadata.items():
        if not 0 < len(key) <= limits.METADATA_KEY_CHARS_MAX or len(value) > limits.METADATA_VALUE_CHARS_MAX:
            raise InvalidArgument(
                f"metadata entry {key[:40]!r} is empty or too long",
                code="invalid_metadata",
                hint=f"Keys have 1 to {limits.METADATA_KEY_CHARS_MAX} characters, values at most "
                f"{limits.METADATA_VALUE_CHARS_MAX}.",
            )
        if "\0" in key or "\0" in value:
            raise InvalidArgument(f"metadata entry {key[:40]!r} has a NUL character", code="invalid_metadata")


def check_env(env: Mapping[str, str]) -> None:
    size_bytes = sum(
        len(key.encode()) + len(value.encode("utf-8", "surrogateescape")) + 2 for key, value in env.items()
    )
    if len(env) > limits.ENV_ENTRIES_MAX or size_bytes > limits.ENV_BYTES_MAX:
        raise InvalidArgument(
            "the environment is too large",
            code="invalid_env",
            hint=f"At most {limits.ENV_ENTRIES_MAX} variables and {limits.ENV_BYTES_MAX} bytes; write a file instead.",
        )
    for key, value in env.items():
        if not _ENV_NAME.fullmatch(key) or "\0" in value:
            raise InvalidArgument(
                f"{key[:40]!r} cannot be an environment variable",
                code="invalid_env",
                hint="Names are letters, digits and underscores, not starting with a digit; values have no NUL.",
            )


def _check_name(what: str, value: str) -> None:
    if len(value) > limits.NAME_CHARS_MAX or not _NAME.fullmatch(value):
        raise InvalidArgument(
            f"{value[:80]!r} cannot be a {what}",
            code=f"invalid_{what}",
            hint=f"Lower-case letters, digits and inner dashes, at most {limits.NAME_CHARS_MAX} characters.",
        )
