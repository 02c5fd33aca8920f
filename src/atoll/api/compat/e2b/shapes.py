"""Sandboxes in E2B's words: what its clients ask for as our model, and our model as what they expect; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, Final
from urllib.parse import parse_qsl, unquote
from uuid import NAMESPACE_OID, uuid5

import msgspec

from atoll.api.compat.e2b import network
from atoll.api.compat.e2b.network import NetworkSettings
from atoll.model import limits
from atoll.model.errors import InvalidArgument
from atoll.model.lifecycle import State
from atoll.model.policy import Policy
from atoll.model.port import PortAccess
from atoll.model.resources import Resources
from atoll.model.sandbox import DEFAULT_TIMEOUT_S, OWN_ID, DeadlineAction, Sandbox, SandboxSpec
from atoll.model.template import Template
from atoll.model.volume import VolumeMount
from atoll.wire.node import SeriesPoint

AGENT_VERSION: Final = "0.6.13"
"""Above every version that a client asks for before it uses a feature."""

CLIENT_ID: Final = "atoll"

_MIB = 1024 * 1024
_MILLISECONDS_FROM: Final = 100_000_000_000
_UNKNOWN = datetime(1970, 1, 1, tzinfo=UTC)

# E2B's names of templates that are the same thing under another name here.
TEMPLATES: Final[dict[str, str]] = {"code-interpreter-v1": "code", "code-interpreter-beta": "code", "base": "base"}

ASLEEP: Final = (State.PAUSING, State.PAUSED, State.RESUMING)
AWAKE: Final = (State.RUNNING, State.STANDBY)


class AutoResume(msgspec.Struct):
    enabled: bool = False


class Mount(msgspec.Struct):
    name: str
    path: str


class NewSandbox(msgspec.Struct, rename="camel"):
    """The body of a create, in both versions of E2B's API."""

    template_id: str = msgspec.field(name="templateID")
    timeout: float | None = None
    auto_pause: bool | None = None
    auto_pause_memory: bool | None = None
    auto_resume: AutoResume | None = None
    secure: bool | None = None
    allow_internet_access: bool | None = msgspec.field(default=None, name="allow_internet_access")
    network: NetworkSettings | None = None
    metadata: dict[str, str] | None = None
    env_vars: dict[str, str] | None = None
    mcp: dict[str, Any] | None = None
    iam: dict[str, Any] | None = None
    volume_mounts: list[Mount] | None = None


def template_name(asked: str, known: Mapping[str, str] = TEMPLATES) -> str:
    """Our template for one that a client names: `name`, `owner/name` or `name:tag`."""
    name = asked.rpartition("/")[2].removesuffix(":default").removesuffix(":latest")
    return known.get(name, name)


def template_alias(name: str) -> str:
    """The name that E2B's users know a template of ours by."""
    return next((alias for alias, ours in TEMPLATES.items() if ours == name), name)


def spec_of(
    asked: NewSandbox,
    default_timeout_s: float = DEFAULT_TIMEOUT_S,
    known: Mapping[str, str] = TEMPLATES,
    team: str = "default",
) -> SandboxSpec:
    template = template_name(asked.template_id, known)
    auto_resume = asked.auto_resume is not None and asked.auto_resume.enabled
    if auto_resume and asked.auto_pause_memory is False:
        raise InvalidArgument("autoResume is not there for a sandbox that pauses without its memory")
    settings = asked.network or NetworkSettings()
    return SandboxSpec(
        template=template,
        metadata=asked.metadata or {},
        env={
            "E2B_SANDBOX": "true",
            "E2B_SANDBOX_ID": OWN_ID,
            "E2B_TEAM_ID": team,
            "E2B_TEMPLATE_ID": template,
            **(asked.env_vars or {}),
        },
        timeout_s=default_timeout_s if asked.timeout is None else asked.timeout,
        on_deadline=_on_deadline(asked),
        auto_resume=auto_resume,
        volumes=tuple(VolumeMount(mount.name, mount.path) for mount in asked.volume_mounts or ()),
        policy=network.policy_of(settings, asked.allow_internet_access),
        ports=network.ports_of(settings),
    )


def _on_deadline(asked: NewSandbox) -> DeadlineAction:
    if not asked.auto_pause:
        return DeadlineAction.KILL
    return DeadlineAction.PAUSE_DISK if asked.auto_pause_memory is False else DeadlineAction.PAUSE


def created(sandbox: Sandbox, token: str, traffic_token: str, domain: str) -> dict[str, Any]:
    """The answer to create, connect and resume."""
    return {
        "templateID": sandbox.template,
        "sandboxID": sandbox.id,
        "clientID": CLIENT_ID,
        "alias": template_alias(sandbox.template),
        "envdVersion": AGENT_VERSION,
        "envdAccessToken": token,
        "trafficAccessToken": traffic_token,
        "domain": domain,
    }


def listed(sandbox: Sandbox) -> dict[str, Any]:
    """One entry of a list."""
    resources = sandbox.resources
    return {
        "templateID": sandbox.template,
        "alias": template_alias(sandbox.template),
        "sandboxID": sandbox.id,
        "clientID": CLIENT_ID,
        "startedAt": moment(sandbox.started_at or sandbox.created_at),
        "endAt": moment(sandbox.deadline_at),
        "cpuCount": max(1, round(resources.cpu)),
        "memoryMB": resources.memory_bytes // _MIB,
        "diskSizeMB": resources.disk_bytes // _MIB,
        "metadata": dict(sandbox.metadata),
        "state": "paused" if sandbox.state in ASLEEP else "running",
        "envdVersion": AGENT_VERSION,
    }


def detail(
    sandbox: Sandbox, token: str | None, domain: str, policy: Policy | None, ports: PortAccess
) -> dict[str, Any]:
    on_timeout = "kill" if sandbox.on_deadline is DeadlineAction.KILL else "pause"
    return {
        **listed(sandbox),
        **({} if token is None else {"envdAccessToken": token}),
        "domain": domain,
        "allowInternetAccess": network.internet_allowed(policy),
        "network": network.shape_of(policy, ports),
        "lifecycle": {"autoResume": sandbox.auto_resume, "onTimeout": on_timeout},
    }


def moment(value: datetime) -> str:
    return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def states_of(wanted: Sequence[str]) -> tuple[State, ...]:
    """The states of a filter such as `running`; without one all that E2B knows."""
    known = {"running": AWAKE, "paused": ASLEEP}
    words = wanted or list(known)
    if not set(words) <= set(known):
        raise InvalidArgument("state is running, paused or both", code="invalid_query")
    return tuple(state for word in known for state in known[word] if word in words)


def metadata_of(text: str) -> dict[str, str]:
    """A filter on metadata: a query string inside the query string, whose keys and values are encoded once more."""
    if not text:
        return {}
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=limits.METADATA_ENTRIES_MAX)
    except ValueError:
        raise InvalidArgument("the metadata filter cannot be read", code="invalid_query") from None
    return {unquote(key): unquote(value) for key, value in pairs}


def page_size(text: str, most: int = 100) -> int:
    if not text:
        return most
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:6]) <= most:
        raise InvalidArgument(f"limit is not between 1 and {most}", code="invalid_query")
    return int(text)


@dataclass(frozen=True, slots=True)
class Use:
    """What a sandbox uses at one moment."""

    at_s: float
    cpu_percent: float
    memory_bytes: int
    disk_bytes: int


def uses_of(points: Sequence[SeriesPoint]) -> list[Use]:
    """What was used between each two looks at a sandbox, as of the second."""
    return [
        Use(
            after.at_s,
            percent(after.cpu_s - before.cpu_s, after.at_s - before.at_s),
            after.memory_bytes,
            after.disk_bytes,
        )
        for before, after in pairwise(points)
    ]


def percent(cpu_s: float, passed_s: float) -> float:
    """How busy processors were; 100 is one of them all the time."""
    return max(0.0, min(100.0 * cpu_s / passed_s, 100_000.0)) if passed_s > 0 else 0.0


def metric(sandbox: Sandbox, use: Use) -> dict[str, Any]:
    resources = sandbox.resources
    return {
        "timestamp": moment(datetime.fromtimestamp(use.at_s, UTC)),
        "timestampUnix": int(use.at_s),
        "cpuCount": max(1, round(resources.cpu)),
        "cpuUsedPct": round(use.cpu_percent, 2),
        "memUsed": use.memory_bytes,
        "memTotal": resources.memory_bytes,
        "memCache": 0,
        "diskUsed": use.disk_bytes,
        "diskTotal": resources.disk_bytes,
    }


def template(known: Template, resources: Resources) -> dict[str, Any]:
    """A template of ours with the fields that E2B's list has. When it was made is not on record."""
    return {
        "templateID": known.name,
        "buildID": build_id(known.name),
        "cpuCount": max(1, round(resources.cpu)),
        "memoryMB": resources.memory_bytes // _MIB,
        "diskSizeMB": resources.disk_bytes // _MIB,
        "public": True,
        "aliases": aliases(known.name),
        "names": aliases(known.name),
        "createdAt": moment(_UNKNOWN),
        "updatedAt": moment(_UNKNOWN),
        "createdBy": None,
        "lastSpawnedAt": None,
        "spawnCount": 0,
        "buildCount": 1,
        "envdVersion": AGENT_VERSION,
        "buildStatus": "ready",
    }


def build_id(template: str) -> str:
    """E2B wants a UUID for the build of a template, or of a snapshot: each has the one that it is."""
    return str(uuid5(NAMESPACE_OID, template))


def aliases(name: str) -> list[str]:
    others = [alias for alias, ours in TEMPLATES.items() if ours == name and alias != name]
    return [name, *others]


def refused_options(asked: NewSandbox) -> Sequence[str]:
    """Options of a create that this server cannot keep; better to say so than to start something else."""
    given = {"mcp": asked.mcp, "iam": asked.iam}
    return [name for name, value in given.items() if value]


def begun_at(sandbox: Sandbox) -> datetime:
    return sandbox.started_at or sandbox.created_at


def moment_of(text: str) -> datetime | None:
    """A moment in a query."""
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidArgument("startedAfter is not a moment", code="invalid_query") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def page_of(
    found: list[Sandbox], cursor: str | None, limit: int, *, newest_first: bool
) -> tuple[list[Sandbox], str | None]:
    """Those after a cursor, which is a place in the order: what comes and goes between pages hides nothing else."""
    order = sorted(found, key=_place, reverse=newest_first)
    if cursor is not None:
        last = _place_in(cursor)
        order = [one for one in order if (_place(one) < last if newest_first else _place(one) > last)]
    page = order[:limit]
    return page, "{}.{}".format(*_place(page[-1])) if len(order) > limit else None


def _place(sandbox: Sandbox) -> tuple[int, str]:
    return (begun_at(sandbox) - _UNKNOWN) // timedelta(microseconds=1), sandbox.id


def _place_in(cursor: str) -> tuple[int, str]:
    begun_us, _, sandbox_id = cursor.partition(".")
    return _number(begun_us, 18), sandbox_id


def place_of(cursor: str | None) -> int:
    """A place in a list that is numbered."""
    return 0 if cursor is None else _number(cursor, 9)


def _number(text: str, digits_max: int) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > digits_max:
        raise InvalidArgument("nextToken is not one of ours", code="invalid_query")
    return int(text)


def in_range(now_s: float, start: str, end: str) -> bool:
    """Whether now is between two moments in unix seconds, each of which may be missing."""
    try:
        return (not start or _seconds(start) <= now_s) and (not end or _seconds(end) + 1 >= now_s)
    except (ValueError, OverflowError):
        raise InvalidArgument("start and end are unix seconds", code="invalid_query") from None


def _seconds(moment: str) -> int:
    """Python's client of 2025 tells milliseconds; no moment in seconds has that many digits before the year 5138."""
    told = int(float(moment))
    return told // 1000 if told >= _MILLISECONDS_FROM else told
