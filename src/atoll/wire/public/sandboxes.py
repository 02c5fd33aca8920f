"""Bodies about sandboxes: what is asked for, and what is known."""

from __future__ import annotations

from datetime import datetime

import msgspec

from atoll.model.resources import Resources
from atoll.model.sandbox import DEFAULT_TEMPLATE, DEFAULT_TIMEOUT_S, Budget, DeadlineAction, Sandbox, SandboxSpec
from atoll.wire.public.base import Answer, Request
from atoll.wire.public.policies import PolicyBody
from atoll.wire.public.volumes import VolumeMountBody, VolumeMountView


class ResourcesBody(Request):
    """The limits of a sandbox; what is left out has its default."""

    cpu: float | None = None
    memory_bytes: int | None = None
    disk_bytes: int | None = None
    pids: int | None = None

    def resources(self) -> Resources:
        given = {key: value for key, value in msgspec.structs.asdict(self).items() if value is not None}
        return Resources(**given)

    def chosen(self) -> frozenset[str]:
        return frozenset(key for key, value in msgspec.structs.asdict(self).items() if value is not None)


class BudgetBody(Request):
    """How much the sandbox may use in all: seconds that it runs, or money by the server's prices."""

    seconds: float | None = None
    money: float | None = None


class SandboxCreate(Request):
    """Ask for a sandbox."""

    template: str = DEFAULT_TEMPLATE
    name: str | None = None
    metadata: dict[str, str] = {}
    env: dict[str, str] = {}
    resources: ResourcesBody = msgspec.field(default_factory=ResourcesBody)
    timeout_s: float = DEFAULT_TIMEOUT_S
    policy: PolicyBody | None = None
    secrets: list[str] = []
    external_id: str | None = None
    """An id of your own, unique for ever among your sandboxes."""
    budget: BudgetBody = msgspec.field(default_factory=BudgetBody)
    on_budget: DeadlineAction = DeadlineAction.KILL
    """How it is stopped when its budget, or that of its tenant, is spent."""
    on_deadline: DeadlineAction = DeadlineAction.KILL
    """What happens at the deadline, and after `idle_timeout_s` without a call, output or traffic."""
    idle_timeout_s: float | None = None
    auto_resume: bool = False
    """Whether a call or a connection wakes it when it is paused."""
    memory: bool = True
    """Of a snapshot: go on from its memory, or boot its disk afresh."""
    volumes: list[VolumeMountBody] = []

    def spec(self) -> SandboxSpec:
        return SandboxSpec(
            template=self.template,
            name=self.name,
            metadata=self.metadata,
            env=self.env,
            resources=self.resources.resources(),
            timeout_s=self.timeout_s,
            policy=self.policy.policy() if self.policy else None,
            secrets=tuple(self.secrets),
            external_id=self.external_id,
            budget=Budget(self.budget.seconds, self.budget.money),
            on_budget=self.on_budget,
            on_deadline=self.on_deadline,
            idle_timeout_s=self.idle_timeout_s,
            auto_resume=self.auto_resume,
            memory=self.memory,
            volumes=tuple(body.mount() for body in self.volumes),
            chosen=self.resources.chosen(),
        )


class SandboxDeadline(Request):
    """Move the deadline: so many seconds from now."""

    timeout_s: float


class SandboxBudget(Request):
    """Another budget, in place of the old one; null is no bound. Without `on_budget` that stays as it is."""

    seconds: float | None = None
    money: float | None = None
    on_budget: DeadlineAction | None = None


class ResourcesView(Answer):
    cpu: float
    memory_bytes: int
    disk_bytes: int
    pids: int


class SandboxView(Answer):
    """A sandbox, as its owner sees it."""

    id: str
    template: str
    name: str | None
    metadata: dict[str, str]
    resources: ResourcesView
    state: str
    created_at: datetime
    started_at: datetime | None
    deadline_at: datetime
    ended_at: datetime | None
    end_reason: str | None
    end_detail: str
    external_id: str | None = None
    budget_s: float | None = None
    budget_money: float | None = None
    on_budget: str = "kill"
    on_deadline: str = "kill"
    idle_timeout_s: float | None = None
    auto_resume: bool = False
    snapshot_id: str | None = None
    volumes: list[VolumeMountView] = []
    sleep_reason: str | None = None
    """Why it is in standby or paused: `asked`, `deadline`, `idle` or `budget_spent`."""

    @classmethod
    def of(cls, sandbox: Sandbox) -> SandboxView:
        resources = sandbox.resources
        return cls(
            id=sandbox.id,
            template=sandbox.template,
            name=sandbox.name,
            metadata=dict(sandbox.metadata),
            resources=ResourcesView(
                cpu=resources.cpu,
                memory_bytes=resources.memory_bytes,
                disk_bytes=resources.disk_bytes,
                pids=resources.pids,
            ),
            state=sandbox.state.value,
            created_at=sandbox.created_at,
            started_at=sandbox.started_at,
            deadline_at=sandbox.deadline_at,
            ended_at=sandbox.ended_at,
            end_reason=sandbox.end_reason.value if sandbox.end_reason else None,
            end_detail=sandbox.end_detail,
            external_id=sandbox.external_id,
            budget_s=sandbox.budget.seconds,
            budget_money=sandbox.budget.money,
            on_budget=sandbox.on_budget.value,
            on_deadline=sandbox.on_deadline.value,
            idle_timeout_s=sandbox.idle_timeout_s,
            auto_resume=sandbox.auto_resume,
            snapshot_id=sandbox.snapshot_id,
            volumes=[VolumeMountView.of(mount) for mount in sandbox.volumes],
            sleep_reason=sandbox.sleep_reason.value if sandbox.sleep_reason else None,
        )


class SandboxCreated(Answer):
    """A new sandbox, and where the time of its creation went."""

    sandbox: SandboxView
    steps_ms: dict[str, float]
    way: str = "boot"
    """`pool`, `shell`, `image` or `boot`: how it came to be, from the fastest to the slowest."""


class StartLog(Answer):
    """How the start of a sandbox went that failed, step by step; empty for one that did start."""

    log: str


class SandboxPage(Answer):
    """One page of sandboxes, newest first; `next` is the cursor of the following page, or null at the end."""

    items: list[SandboxView]
    next: str | None
    total: int | None = None
    """How many there are on all pages, if `count=true` was asked for."""
