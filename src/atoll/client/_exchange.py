"""The half of the SDK that does no I/O: build requests, read answers, turn problems into errors, decide retries."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from atoll.client._policies import PolicyLike, policy_body
from atoll.model import limits
from atoll.model.errors import (
    KINDS,
    AtollError,
    ConnectionFailed,
    DeadlineExceeded,
    GuestFailed,
    Internal,
    InvalidArgument,
    LimitExceeded,
    Unavailable,
)
from atoll.model.sandbox import DeadlineAction
from atoll.wire.public import (
    BudgetBody,
    Problem,
    ProcessStart,
    ResourcesBody,
    SandboxCreate,
    SnapshotView,
    VolumeMountBody,
)

Answer = TypeVar("Answer")

FRAMES = "application/vnd.atoll.frames"
IDEMPOTENCY_KEY = "idempotency-key"
JSON = "application/json"

_KIND_BY_STATUS: dict[int, type[AtollError]] = {kind.http_status: kind for kind in KINDS.values()}
_PASSING = (Unavailable, DeadlineExceeded, LimitExceeded, GuestFailed)
_IDEMPOTENT = frozenset({"GET", "PUT", "DELETE"})
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}


def segment(text: str) -> str:
    """An id or a name as one part of a path: whatever it holds, it cannot leave its place."""
    if not text or text in (".", ".."):
        raise InvalidArgument(f"{text!r} is not an id", code="invalid_id")
    return quote(text.encode("utf-8", "surrogateescape"), safe="")


def query(**parameters: str | float | bool | None) -> str:
    """A query string, without what is None. A name that is not UTF-8 arrives byte for byte (surrogateescape)."""
    return query_pairs([(key, value) for key, value in parameters.items() if value is not None])


def query_pairs(pairs: Sequence[tuple[str, str | float | bool]]) -> str:
    """The same for names that may come more than once."""
    return "?" + urlencode([(key, _query_value(value)) for key, value in pairs]) if pairs else ""


def octal(mode: int | None) -> str | None:
    """The rights of a file as the API takes them."""
    return None if mode is None else f"{mode:o}"


Pairs = list[tuple[str, str]]


def list_filters(
    state: str | Sequence[str] | None,
    template: str | None,
    name: str | None,
    metadata: Mapping[str, str] | None,
    created_after: datetime | None = None,
    created_before: datetime | None = None,
) -> Pairs:
    """What a list is filtered by; one `state` each, and metadata as one `metadata=key=value` each."""
    states = (state,) if isinstance(state, str) else state or ()
    given = {
        "template": template,
        "name": name,
        "created_after": moment(created_after),
        "created_before": moment(created_before),
    }
    pairs = [("state", one) for one in states]
    pairs += [(key, value) for key, value in given.items() if value is not None]
    return pairs + [("metadata", f"{key}={value}") for key, value in (metadata or {}).items()]


def event_filters(
    actions: Sequence[str],
    target: str | None,
    actor: str | None,
    result: str | None,
    since: datetime | None,
    until: datetime | None,
    all_tenants: bool,
) -> Pairs:
    """Which events are wanted."""
    given = {
        "target": target,
        "actor": actor,
        "result": result,
        "since": moment(since),
        "until": moment(until),
        "all_tenants": "true" if all_tenants else None,
    }
    pairs = [(key, value) for key, value in given.items() if value is not None]
    return pairs + [("action", action) for action in actions]


def moment(value: datetime | None) -> str | None:
    """A time as the API takes it. One without a zone is meant as it is on this machine."""
    return None if value is None else value.astimezone(UTC).isoformat()


def list_query(filters: Pairs, left: int | None, cursor: str | None) -> str:
    """The query for one page: no more than is still wanted, from the cursor on."""
    pairs = [*filters, ("limit", str(min(limits.PAGE_ITEMS_MAX, left or limits.PAGE_ITEMS_MAX)))]
    if cursor is not None:
        pairs.append(("cursor", cursor))
    return "?" + urlencode(pairs)


def _query_value(value: str | float | bool) -> bytes:
    if isinstance(value, bool):
        return b"true" if value else b"false"
    return str(value).encode("utf-8", "surrogateescape")


def encode(body: msgspec.Struct) -> bytes:
    """A body as JSON. Names that are not UTF-8 are in the text as escaped surrogates, which JSON can carry."""
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(body)).encode("ascii")


def decode(content: bytes, kind: type[Answer]) -> Answer:
    """An answer as its type; what does not fit is the server's fault and said so."""
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    try:
        # Slower, but takes the escaped surrogates of a name that is not UTF-8.
        return msgspec.convert(json.loads(content), type=kind)
    except (ValueError, RecursionError) as error:
        raise Internal(
            "the server's answer is not what this version expects",
            code="bad_answer",
            hint="Is ATOLL_URL the address of an Atoll server, and of the same version?",
            detail=f"{kind}: {error}",
        ) from None


def problem_error(problem: Problem) -> AtollError:
    """The error that a problem stands for: the same class that the server raised."""
    kind = _KIND_BY_STATUS.get(problem.status, Internal if problem.status >= 500 else InvalidArgument)
    detail = f"request {problem.request_id}" if problem.request_id else ""
    return kind(problem.detail or problem.title, code=problem.code, hint=problem.hint, detail=detail)


def answer_error(status: int, content: bytes) -> AtollError:
    """The error behind an answer that is not a success, also where something else than our server gave it."""
    try:
        return problem_error(msgspec.json.decode(content, type=Problem))
    except (msgspec.DecodeError, UnicodeDecodeError):
        kind = _KIND_BY_STATUS.get(status, Internal if status >= 500 else InvalidArgument)
        return kind(
            f"the server answered with status {status}",
            hint="The answer is not from an Atoll server: look at the address, and at any proxy in between.",
            detail=content[:512].decode("utf-8", "replace"),
        )


@dataclass(frozen=True, slots=True)
class Failure:
    """A request that got no answer: was it on its way, or was there no connection at all?"""

    sent: bool
    timed_out: bool
    reason: str


def failure_error(failure: Failure, url: str) -> AtollError:
    if failure.timed_out and failure.sent:
        return DeadlineExceeded(f"{url} did not answer in time", hint="Is the server overloaded? See `atoll doctor`.")
    if failure.sent:
        return ConnectionFailed(
            f"the connection to {url} broke before the answer was complete ({failure.reason})",
            code="connection_lost",
            hint="The server may have been restarted; what was asked may or may not have been done.",
        )
    return ConnectionFailed(
        f"no server answers at {url} ({failure.reason})",
        hint="Start one with `atoll serve`, or set ATOLL_URL to the address of one that runs.",
    )


def retry_delay_s(method: str, failure: Failure, attempt: int, replayable: bool, chance: float) -> float | None:
    """How long to wait before the next attempt (the first has number 1), or None for giving up.

    Repeated is only what may be: a request that was never sent, or one that does the same when it is done twice. A
    server that refuses the connection is asked again only by requests that were under way when it went, so that a
    missing server is reported at once.
    """
    if attempt >= limits.CLIENT_ATTEMPTS_MAX or failure.timed_out or not replayable:
        return None
    if attempt == 1 and not failure.sent:
        return None
    if failure.sent and method not in _IDEMPOTENT:
        return None
    return backoff_s(attempt, chance)


def backoff_s(attempt: int, chance: float) -> float:
    """Doubling from the first wait on, between half and all of it, so that many clients do not come back at once."""
    return limits.CLIENT_BACKOFF_S * 2.0 ** (attempt - 1) * (0.5 + chance / 2)


def follow_delay_s(error: AtollError, attempt: int, chance: float) -> float | None:
    """How long to wait before something that is followed is asked for again, or None for giving up.

    A server that is being restarted, or what stands before it, says so in several ways.
    """
    if not isinstance(error, _PASSING) or attempt >= limits.FOLLOW_ATTEMPTS_MAX:
        return None
    return min(backoff_s(attempt, chance), limits.FOLLOW_BACKOFF_S_MAX)


def parse_bytes(value: int | str | None) -> int | None:
    """An amount of memory or disk: a number of bytes, or text such as "512MiB" or "2GiB"."""
    if value is None or isinstance(value, int):
        return value
    text = value.strip().upper().replace(" ", "")
    number = text.rstrip("KMGTIB")
    unit = text[len(number) :]
    try:
        size = float(number) * _UNITS[unit]
        return int(size)
    except (ValueError, KeyError, OverflowError):
        raise InvalidArgument(
            f"{value[:40]!r} is not an amount", code="invalid_resources", hint='Write 2GiB, 512MiB or bytes: "2GiB".'
        ) from None


def create_body(
    template: str | SnapshotView,
    *,
    name: str | None,
    metadata: Mapping[str, str] | None,
    env: Mapping[str, str] | None,
    cpu: float | None,
    memory: int | str | None,
    disk: int | str | None,
    pids: int | None,
    timeout_s: float,
    policy: PolicyLike | None = None,
    secrets: Sequence[str] = (),
    external_id: str | None = None,
    budget_s: float | None = None,
    budget_money: float | None = None,
    on_budget: str = "kill",
    on_deadline: str = "kill",
    idle_timeout_s: float | None = None,
    auto_resume: bool = False,
    with_memory: bool = True,
    volumes: Mapping[str, str] | None = None,
) -> SandboxCreate:
    return SandboxCreate(
        template=snapshot_id(template),
        name=name,
        metadata=dict(metadata or {}),
        env=dict(env or {}),
        resources=ResourcesBody(cpu=cpu, memory_bytes=parse_bytes(memory), disk_bytes=parse_bytes(disk), pids=pids),
        timeout_s=timeout_s,
        policy=None if policy is None else policy_body(policy),
        secrets=list(secrets),
        external_id=external_id,
        budget=BudgetBody(seconds=budget_s, money=budget_money),
        on_budget=deadline_action(on_budget),
        on_deadline=deadline_action(on_deadline),
        idle_timeout_s=idle_timeout_s,
        auto_resume=auto_resume,
        memory=with_memory,
        volumes=[mount_body(path, volume) for path, volume in (volumes or {}).items()],
    )


def snapshot_id(snapshot: str | SnapshotView) -> str:
    """A snapshot, or its id or name, in the words of a path or a body."""
    return snapshot if isinstance(snapshot, str) else snapshot.id


def mount_body(path: str, volume: str) -> VolumeMountBody:
    """`name` mounts a volume for writing, `name:ro` for reading only."""
    name, _, mode = volume.partition(":")
    if mode not in ("", "ro", "rw"):
        raise InvalidArgument(f"{volume[:80]!r} is not a volume", code="invalid_volumes", hint='Write "data:ro".')
    return VolumeMountBody(volume=name, path=path, read_only=mode == "ro")


def deadline_action(text: str) -> DeadlineAction:
    try:
        return DeadlineAction(text)
    except ValueError:
        raise InvalidArgument(
            f"{text[:40]!r} is no way to stop a sandbox", code="invalid_argument", hint="kill, pause or standby."
        ) from None


def start_body(cmd: str | list[str] | tuple[str, ...], **options: Any) -> ProcessStart:
    """A string is a line for the shell, a list is an argument vector. Options that are None have their default."""
    given = {key: value for key, value in options.items() if value is not None}
    if isinstance(cmd, str):
        return ProcessStart(cmd=cmd, **given)
    return ProcessStart(argv=list(cmd), **given)
