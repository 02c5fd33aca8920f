"""E2B's webhooks: ours in E2B's words, with E2B's signature. Retries, and where nothing is sent, are ours."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

import msgspec

from atoll.api.compat.e2b import records, shapes
from atoll.api.compat.e2b.ask import Ask, Operation
from atoll.control.authz import ADMIN
from atoll.control.webhooks import Delivery, Post, Webhook
from atoll.model.errors import InvalidArgument, NotFound
from atoll.model.event import Event
from atoll.wire import codec

FORM: Final = "e2b"


class NewWebhook(msgspec.Struct, rename="camel"):
    url: str
    events: list[str]
    name: str = ""
    enabled: bool = True
    signature_secret: str = ""


class WebhookChange(msgspec.Struct, rename="camel"):
    url: str | None = None
    events: list[str] | None = None
    name: str | None = None
    enabled: bool | None = None
    signature_secret: str | None = None


def actions_of(kinds: list[str]) -> tuple[str, ...]:
    """Our actions for E2B's kinds, and the kinds themselves: one action may tell of several; pure."""
    if set(kinds) - records.ACTIONS.keys() or not kinds:
        raise InvalidArgument(f"events are some of: {', '.join(records.ACTIONS)}", code="invalid_body")
    return (*records.actions_of(kinds), *dict.fromkeys(kinds))


def shape(hook: Webhook) -> dict[str, Any]:
    """A webhook; never its secret."""
    return {
        "id": hook.id,
        "teamId": hook.owner,
        "name": hook.name,
        "url": hook.url,
        "enabled": hook.enabled,
        "events": [action for action in hook.actions if action in records.ACTIONS],
        "createdAt": shapes.moment(hook.created_at),
    }


def post_of(hook: Webhook, delivery: Delivery, event: Event, now: datetime) -> Post | None:  # noqa: ARG001 - as all
    """What is sent: the event, and a hash of the secret and the body. Nothing, if its kind was not asked for."""
    if records.kind_of(event) not in hook.actions:
        return None
    body = codec.encode(records.lifecycle_event(event))
    digest = hashlib.sha256(hook.secret.encode("ascii") + body).digest()
    headers: Mapping[str, str] = {
        "content-type": "application/json",
        "user-agent": "atoll-webhooks",
        "e2b-webhook-id": hook.id,
        "e2b-delivery-id": delivery.id,
        "e2b-signature-version": "v1",
        "e2b-signature": base64.b64encode(digest).decode("ascii").rstrip("="),
    }
    return Post(hook.url, headers, body)


async def create(ask: Ask) -> None:
    ask.principal.check(ADMIN)
    asked = await ask.body(NewWebhook)
    hook = await ask.control.accounts.webhooks.create(
        ask.principal,
        asked.url,
        actions_of(asked.events),
        name=asked.name,
        enabled=asked.enabled,
        form=FORM,
        secret=asked.signature_secret,
    )
    await ask.answer(shape(hook), 201)


async def list_all(ask: Ask) -> None:
    ask.principal.check(ADMIN)
    found = await ask.control.accounts.webhooks.every(ask.principal.owner)
    await ask.answer([shape(hook) for hook in found if hook.form == FORM])


async def show(ask: Ask) -> None:
    await ask.answer(shape(await _find(ask)))


async def change(ask: Ask) -> None:
    hook = await _find(ask)
    asked = await ask.body(WebhookChange)
    wanted = {"url": asked.url, "name": asked.name, "enabled": asked.enabled, "secret": asked.signature_secret}
    changes: dict[str, Any] = {name: value for name, value in wanted.items() if value is not None}
    if asked.events is not None:
        changes["actions"] = actions_of(asked.events)
    await ask.answer(shape(await ask.control.accounts.webhooks.change(ask.principal, replace(hook, **changes))))


async def delete(ask: Ask) -> None:
    hook = await _find(ask)
    await ask.control.accounts.webhooks.remove(ask.principal, hook.id)
    await ask.answer(None, 204)


async def _find(ask: Ask) -> Webhook:
    ask.principal.check(ADMIN)
    hook = await ask.control.accounts.webhooks.get(ask.principal.owner, ask.path["webhook"])
    if hook.form != FORM:
        raise NotFound("there is no such webhook in E2B's form", code="webhook_not_found")
    return hook


_ONE: Final = "/events/webhooks/{webhook}"

OPERATIONS: Final = (
    Operation("POST", "/events/webhooks", create),
    Operation("GET", "/events/webhooks", list_all),
    Operation("GET", _ONE, show),
    Operation("PATCH", _ONE, change),
    Operation("DELETE", _ONE, delete),
)
