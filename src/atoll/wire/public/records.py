"""Bodies about what happened and what was used: events, usage, webhooks, and the state of the server."""

from __future__ import annotations

from datetime import datetime

from atoll.wire.public.base import Answer, Request
from atoll.wire.public.nodes import NodeView


class EventView(Answer):
    """One entry of the audit log."""

    number: int
    at: datetime
    tenant: str
    actor: str
    action: str
    target: str
    result: str
    source: str
    request_id: str
    detail: dict[str, str]


class EventPage(Answer):
    """Some events, oldest first. `next` is the place after them: ask with `after` for what follows."""

    items: list[EventView]
    next: int


class UsageView(Answer):
    """The usage of one group. GiB-seconds are what was held, on average, times the time."""

    group: str
    sandboxes: int
    wall_s: float
    cpu_s: float
    memory_gib_s: float
    disk_gib_s: float
    egress_bytes: int
    money: float


class UsageReport(Answer):
    """Usage by group, up to a moment ago, with what it costs by the server's prices."""

    by: str | None
    since: datetime | None
    until: datetime | None
    currency: str
    items: list[UsageView]
    truncated: bool = False
    """There are more groups than one answer has; narrow it down."""


class WebhookCreate(Request):
    """Have events of sandboxes posted to an address; no actions means all of them."""

    url: str
    actions: list[str] = []


class WebhookView(Answer):
    """A webhook, with the secret that signs what it gets."""

    id: str
    url: str
    actions: list[str]
    secret: str
    created_at: datetime


class WebhookList(Answer):
    items: list[WebhookView]


class DeliveryView(Answer):
    """One event on its way to a webhook; `action` is empty if the event has been forgotten."""

    id: str
    event: int
    action: str
    target: str
    state: str
    attempts: int
    status: int | None
    error: str
    due_at: datetime
    updated_at: datetime


class DeliveryList(Answer):
    items: list[DeliveryView]


class StatusView(Answer):
    """How the server is, for people: what it has, what is used, and what should worry them."""

    version: str
    tenant: str
    key_id: str
    scopes: list[str]
    sandboxes: dict[str, int]
    node: NodeView
    month_s: float
    month_money: float
    currency: str
    warnings: list[str]
