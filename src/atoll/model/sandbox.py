"""A sandbox as asked for (SandboxSpec) and as known (Sandbox)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from atoll.model import ids, limits
from atoll.model.errors import InvalidArgument
from atoll.model.lifecycle import EndReason, SleepReason, State
from atoll.model.policy import Policy
from atoll.model.port import PortAccess
from atoll.model.resources import Resources
from atoll.model.volume import VolumeMount, check_mounts

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

EXTERNAL_ID = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.:-]*[A-Za-z0-9])?")

DEFAULT_TEMPLATE = "code"
DEFAULT_TIMEOUT_S = 300

OWN_ID = "${atoll.sandbox_id}"
"""The value of a variable that is to be the id of the sandbox itself: in a copy it is the copy's."""


class DeadlineAction(StrEnum):
    """What happens to a sandbox at its deadline, when it was idle for too long, and when its budget is spent."""

    KILL = "kill"
    PAUSE = "pause"
    PAUSE_DISK = "pause_disk"  # without its memory: it boots from its disk when it wakes
    STANDBY = "standby"


@dataclass(frozen=True, slots=True)
class Budget:
    """How much one sandbox may use in all: seconds that it runs, or money; None is no bound."""

    seconds: float | None = None
    money: float | None = None

    def checked(self) -> Budget:
        for value in (self.seconds, self.money):
            if value is not None and not 0 < value <= limits.BUDGET_VALUE_MAX:  # also false for NaN
                raise InvalidArgument(
                    f"a budget of {value} cannot be kept",
                    code="invalid_budget",
                    hint=f"It is above 0 and at most {limits.BUDGET_VALUE_MAX:g}.",
                )
        return self


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """What a caller asks for; `checked` refuses what cannot be granted."""

    template: str = DEFAULT_TEMPLATE
    name: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    resources: Resources = field(default_factory=Resources)
    timeout_s: float = DEFAULT_TIMEOUT_S
    external_id: str | None = None
    """An id of the caller's own: unique for ever among its sandboxes, and as good as ours to find this one."""
    on_deadline: DeadlineAction = DeadlineAction.KILL
    budget: Budget = field(default_factory=Budget)
    on_budget: DeadlineAction = DeadlineAction.KILL
    """How it is stopped when its budget, or its tenant's, is spent."""
    idle_timeout_s: float | None = None
    """After so long without a call, a stream or a connection, what `on_deadline` says happens; None: never."""
    auto_resume: bool = False
    """Whether a call or a connection wakes it when it is paused. From standby it always does."""
    memory: bool = True
    """Of a snapshot that has memory: whether to go on from there, or to boot its disk afresh."""
    volumes: tuple[VolumeMount, ...] = ()
    chosen: frozenset[str] = frozenset()
    """The resources that the caller named; the others are those of the snapshot, where it starts from one."""
    snapshot_id: str | None = None
    """Set once it is known that `template` names a snapshot."""
    network_of: str | None = None
    """The sandbox whose policy and secrets a copy of it gets."""
    policy: Policy | None = None
    """What it may reach; without one, nothing."""
    secrets: tuple[str, ...] = ()
    """The names of the secrets whose placeholders it gets."""
    ports: PortAccess | None = None
    """The rules of its ports from the first moment on; without any, the usual ones."""

    def checked(self) -> SandboxSpec:
        check_name("template", self.template)
        if self.name is not None:
            check_name("name", self.name)
            if ids.is_id(ids.SANDBOX, self.name):  # it would never be found by that
                raise InvalidArgument("this name looks like the id of a sandbox", code="invalid_name")
        check_metadata(self.metadata)
        check_env(self.env)
        check_timeout(self.timeout_s)
        self.resources.checked()
        if self.external_id is not None:
            check_external_id(self.external_id)
        self.budget.checked()
        check_idle_timeout(self.idle_timeout_s)
        check_mounts(self.volumes)
        if self.ports is not None:
            self.ports.checked()
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
    external_id: str | None = None
    on_deadline: DeadlineAction = DeadlineAction.KILL
    budget: Budget = field(default_factory=Budget)
    timeout_s: float = DEFAULT_TIMEOUT_S
    """What a deadline is set to when it wakes up."""
    idle_timeout_s: float | None = None
    auto_resume: bool = False
    volumes: tuple[VolumeMount, ...] = ()
    snapshot_id: str | None = None
    """The snapshot that it began from."""
    on_budget: DeadlineAction = DeadlineAction.KILL
    sleep_reason: SleepReason | None = None
    """Why it is in standby or paused, if it is."""


def hostname_of(sandbox: Sandbox) -> str:
    """What a sandbox calls itself. What was made of another must not bear that one's name."""
    if sandbox.name is not None:
        return sandbox.name
    return "sandbox" if sandbox.snapshot_id is None else f"sandbox-{sandbox.id[-8:]}"


def check_idle_timeout(idle_timeout_s: float | None) -> None:
    if idle_timeout_s is not None and not limits.IDLE_S_MIN <= idle_timeout_s <= limits.TIMEOUT_S_MAX:
        raise InvalidArgument(
            f"idle_timeout_s is {idle_timeout_s}, which is not between {limits.IDLE_S_MIN:g} and "
            f"{limits.TIMEOUT_S_MAX}",
            code="invalid_timeout",
        )


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
        if not (key + value).isascii() and any("\ud800" <= letter <= "\udfff" for letter in key + value):
            raise InvalidArgument(f"metadata entry {key[:40]!r} is no text", code="invalid_metadata")


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


def check_external_id(value: str) -> None:
    if len(value) > limits.EXTERNAL_ID_CHARS_MAX or not EXTERNAL_ID.fullmatch(value):
        raise InvalidArgument(
            f"{value[:80]!r} cannot be an id",
            code="invalid_id",
            hint="Letters, digits and inner dots, dashes, colons and underscores, at most "
            f"{limits.EXTERNAL_ID_CHARS_MAX} characters.",
        )
    if ids.is_id(ids.SANDBOX, value):
        raise InvalidArgument("this id looks like one of ours", code="invalid_id", hint="Choose another one.")


def check_name(what: str, value: str) -> None:
    if len(value) > limits.NAME_CHARS_MAX or not _NAME.fullmatch(value):
        raise InvalidArgument(
            f"{value[:80]!r} cannot be a {what}",
            code=f"invalid_{what}",
            hint=f"Lower-case letters, digits and inner dashes, at most {limits.NAME_CHARS_MAX} characters.",
        )
