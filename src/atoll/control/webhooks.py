"""Webhooks: tenants hear of what happens to their sandboxes; signed, tried again, and never sent to a private address.

A delivery is on record with its event. It is claimed before it is sent, by moving its due time past the attempt, so a
server that dies in the middle leaves it to be sent again: a receiver may hear of an event twice, and knows it by its
id. The signature is that of Standard Webhooks: `webhook-id`, `webhook-timestamp` and `webhook-signature`, HMAC-SHA256
over the three parts `id.timestamp.body`. What signs is encrypted in the database, as secrets are.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import hmac
import json
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from urllib.parse import urlsplit

import anyio
import structlog
from anyio.abc import TaskGroup
from sqlalchemy import Connection

from atoll.control.authz import Principal
from atoll.control.clock import Clock
from atoll.control.events import Events, as_json
from atoll.control.loops import forever
from atoll.control.posting import Post as Post
from atoll.control.posting import Posted
from atoll.control.store import events as event_rows
from atoll.control.store import webhooks as rows
from atoll.control.store.engine import Store
from atoll.control.store.moments import to_us
from atoll.control.store.webhooks import NATIVE, DeliveryState
from atoll.control.store.webhooks import Delivery as Delivery
from atoll.control.store.webhooks import Webhook as Webhook
from atoll.control.vault import Vault
from atoll.model import ids, limits
from atoll.model.errors import Internal, InvalidArgument, LimitExceeded, NotFound, Unavailable
from atoll.model.event import Event
from atoll.model.text import cleaned, is_text
from atoll.telemetry import Metrics

log = structlog.get_logger(__name__)

SECRET_PREFIX = "whsec_"  # noqa: S105 - what secrets begin with, not one
Sender = Callable[[Post], Awaitable[Posted]]
Form = Callable[[Webhook, Delivery, Event, datetime], Post | None]
"""What is sent of an event; None if this webhook does not want it after all."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A delivery, and the event that it is about, unless that has been forgotten."""

    delivery: Delivery
    event: Event | None


@dataclass(frozen=True, slots=True)
class Work:
    """What there is to send now, when there will be more, and whether anybody wants to hear of what happens."""

    due: list[Delivery]
    next_due: datetime | None
    listened_to: bool


class Webhooks:
    """The webhooks of one server, and the loop that sends to them."""

    def __init__(
        self, store: Store, clock: Clock, events: Events, metrics: Metrics, vault: Vault, send: Sender
    ) -> None:
        self._store = store
        self._vault = vault
        self._clock = clock
        self._events = events
        self._metrics = metrics
        self._send = send
        self._under_way: Counter[str] = Counter()
        """Deliveries, by webhook."""
        self._changed = anyio.Event()
        self.forms: dict[str, Form] = {NATIVE: post_of}
        """How an event is told, by the form of a webhook; a façade adds its vendor's."""

    async def create(
        self,
        by: Principal,
        url: str,
        actions: tuple[str, ...],
        *,
        name: str = "",
        enabled: bool = True,
        form: str = NATIVE,
        secret: str = "",
    ) -> Webhook:
        """A new webhook. Its secret is shown with it, and whenever it is shown to an admin.

        It is made here; where a form signs in another way, its owner may bring one.
        """
        _check(url, actions, name, secret, form)
        now = self._clock.now()
        hook = Webhook(
            id=ids.mint(ids.WEBHOOK, to_us(now) // 1000, secrets.token_bytes(16)),
            owner=by.owner,
            url=url,
            secret=secret or SECRET_PREFIX + base64.b64encode(secrets.token_bytes(32)).decode("ascii"),
            actions=actions,
            created_at=now,
            name=name,
            enabled=enabled,
            form=form,
        )
        kept = replace(hook, secret=self._vault.seal(hook.secret, _label(hook)))
        await self._store.write(_add, kept, self._events.of(by, "webhook.created", target=hook.id, detail={"url": url}))
        self._events.written()
        self._changed.set()
        return hook

    async def every(self, owner: str) -> list[Webhook]:
        return [self._opened(hook) for hook in await self._store.read(rows.of_owner, owner)]

    async def get(self, owner: str, hook_id: str) -> Webhook:
        return self._opened(await self._find(owner, hook_id))

    async def change(self, by: Principal, hook: Webhook) -> Webhook:
        """Another address, name, secret, other actions, or a pause, for one that was found; what waits goes there."""
        _check(hook.url, hook.actions, hook.name, hook.secret, hook.form)
        known = await self._find(by.owner, hook.id)
        kept = replace(hook, secret=self._vault.seal(hook.secret, _label(hook)) if hook.secret else known.secret)
        await self._store.write(
            _change, kept, self._events.of(by, "webhook.changed", target=hook.id, detail={"url": hook.url})
        )
        self._events.written()
        self._changed.set()
        return hook

    async def remove(self, by: Principal, hook_id: str) -> None:
        await self._find(by.owner, hook_id)
        await self._store.write(_remove, hook_id, self._events.of(by, "webhook.removed", target=hook_id))
        self._events.written()

    async def deliveries(self, owner: str, hook_id: str) -> list[Shown]:
        """The newest deliveries, those that failed and those that wait included."""
        await self._find(owner, hook_id)
        return await self._store.read(_deliveries, hook_id)

    async def run(self) -> None:
        """Send what is due, for ever. Nobody waits for a receiver but what else it is sent."""
        async with anyio.create_task_group() as tasks:
            await forever(functools.partial(self._step, tasks))

    async def _step(self, tasks: TaskGroup) -> None:
        """Begin to send what is due, or wait for more. Where nobody listens, what happens to sandboxes wakes nobody."""
        self._changed = anyio.Event()
        added = self._events.next_added()
        now = self._clock.now()
        busy = [hook_id for hook_id, count in self._under_way.items() if count >= limits.WEBHOOK_AT_ONCE_MAX]
        room = limits.WEBHOOKS_AT_ONCE_MAX - self._under_way.total()
        work = await self._store.read(_work, now, busy, room)
        fitting = self._fitting(work.due)
        if fitting:
            claimed_until = now + timedelta(seconds=limits.WEBHOOK_S_MAX * 2)
            for delivery in await self._store.write(_claim, fitting, claimed_until):
                self._under_way[delivery.webhook_id] += 1
                tasks.start_soon(self._deliver, delivery)
            return
        look_at = now + timedelta(seconds=limits.WEBHOOK_LOOK_S)
        wake_at = min(look_at, max(work.next_due or look_at, now)) if room else look_at
        async with anyio.create_task_group() as waiting:
            if work.listened_to:
                waiting.start_soon(_wait_then_cancel, added, waiting.cancel_scope)
            await self._clock.wait_until(wake_at, self._changed)
            waiting.cancel_scope.cancel()

    def _fitting(self, due: list[Delivery]) -> list[Delivery]:
        """Of each webhook no more than may be under way."""
        counts = Counter(self._under_way)
        fitting = []
        for delivery in due:
            if counts[delivery.webhook_id] < limits.WEBHOOK_AT_ONCE_MAX:
                counts[delivery.webhook_id] += 1
                fitting.append(delivery)
        return fitting

    async def reseal(self) -> None:
        """Encrypt with the first key what is encrypted with an older one, or not at all; done at start."""
        for hook in await self._store.read(rows.everything):
            if not self._vault.is_current(hook.secret):
                secret = self._opened(hook).secret
                if secret:
                    await self._store.write(rows.reseal, hook, self._vault.seal(secret, _label(hook)))

    def _opened(self, hook: Webhook) -> Webhook:
        """A webhook with its secret in the clear; with none if the key that it needs is gone."""
        if hook.secret.startswith(SECRET_PREFIX):  # kept by a version that did not encrypt it
            return hook
        try:
            return replace(hook, secret=self._vault.open(hook.secret, _label(hook)).reveal())
        except Internal as error:
            log.error("webhook_secret_unusable", webhook_id=hook.id, error=error.message)
            return replace(hook, secret="")

    async def _deliver(self, delivery: Delivery) -> None:
        """Attempt one that was claimed. What goes wrong here is tried again when the claim is over."""
        try:
            try:
                posted = await self._attempt(delivery)
            except Unavailable:  # of the database: it was no attempt
                raise
            except Exception as error:  # whatever it is, it counts as one, or it would be tried for ever
                posted = Posted(None, repr(error))
            if posted is None:
                await self._store.write(rows.drop, delivery)
                return
            settled = settle(replace(delivery, attempts=delivery.attempts + 1), posted, self._clock.now())
            self._metrics.webhook_deliveries.labels(settled.state.value).inc()
            await self._store.write(rows.settle, settled)
        except Exception as error:  # the other deliveries go on, whatever it is
            log.error("delivery_unsettled", webhook_id=delivery.webhook_id, error=repr(error))
        finally:
            self._under_way[delivery.webhook_id] -= 1
            self._under_way += Counter()  # without those of which there are none
            self._changed.set()

    async def _attempt(self, delivery: Delivery) -> Posted | None:
        """What came of it; None if its webhook's form has no words for such an event."""
        hook = await self._store.read(rows.by_id, delivery.webhook_id)
        event = await self._store.read(event_rows.by_number, delivery.event_number)
        hook = self._opened(hook) if hook else None
        if hook is None or event is None:
            return Posted(None, "the webhook or the event is gone", final=True)
        if not hook.secret:  # never sent unsigned; the key may come back
            return Posted(None, "the secret that signs it cannot be decrypted: its key is not there")
        if hook.form not in self.forms:  # what spoke this form is not installed any more; it may come back
            return Posted(None, f"nobody here speaks the form {hook.form!r}")
        post = self.forms[hook.form](hook, delivery, event, self._clock.now())
        return await self._send(post) if post is not None else None

    async def _find(self, owner: str, hook_id: str) -> Webhook:
        hook = await self._store.read(rows.by_id, hook_id) if ids.is_id(ids.WEBHOOK, hook_id) else None
        if hook is None or hook.owner != owner:
            raise NotFound(f"there is no webhook {hook_id[:80]!r}", code="webhook_not_found")
        return hook


def _label(hook: Webhook) -> str:
    """What a sealed secret is bound to: moved to another row it does not open."""
    return f"webhook\0{hook.owner}\0{hook.id}"


def post_of(hook: Webhook, delivery: Delivery, event: Event, now: datetime) -> Post:
    """What is sent: the event as JSON, signed."""
    body = json.dumps({"id": delivery.id, "type": event.action, "event": as_json(event)}).encode("utf-8")
    timestamp = str(to_us(now) // 1_000_000)
    headers = {
        "content-type": "application/json",
        "user-agent": "atoll-webhooks",
        "webhook-id": delivery.id,
        "webhook-timestamp": timestamp,
        "webhook-signature": signature(hook.secret, delivery.id, timestamp, body),
    }
    return Post(hook.url, headers, body)


def signature(secret: str, message_id: str, timestamp: str, body: bytes) -> str:
    """The signature that a receiver computes too, and compares."""
    key = base64.b64decode(secret.removeprefix(SECRET_PREFIX))
    digest = hmac.digest(key, f"{message_id}.{timestamp}.".encode("ascii") + body, hashlib.sha256)
    return "v1," + base64.b64encode(digest).decode("ascii")


def settle(delivery: Delivery, posted: Posted, now: datetime) -> Delivery:
    """A delivery after an attempt: done, to be tried again after a pause, or given up."""
    status, error = posted.status, cleaned(posted.error, 500)
    if status is not None and 200 <= status < 300:
        return replace(delivery, state=DeliveryState.DELIVERED, status=status, error="", updated_at=now)
    if posted.final or delivery.attempts >= limits.WEBHOOK_ATTEMPTS_MAX:
        return replace(delivery, state=DeliveryState.FAILED, status=status, error=error, updated_at=now)
    due_at = now + timedelta(seconds=retry_s(delivery.attempts))
    return replace(delivery, due_at=due_at, status=status, error=error, updated_at=now)


def retry_s(attempts: int) -> float:
    """The pause after so many attempts."""
    return min(limits.WEBHOOK_RETRY_S_MIN * 3.0 ** (attempts - 1), limits.WEBHOOK_RETRY_S_MAX)


def _check(url: str, actions: tuple[str, ...], name: str, secret: str, form: str) -> None:
    if len(name) > limits.KEY_NAME_CHARS_MAX or not is_text(name):
        raise InvalidArgument("the name of a webhook is too long, or no text", code="invalid_name")
    if len(secret) > limits.WEBHOOK_SECRET_CHARS_MAX or not secret.isascii() or not (secret + "x").isprintable():
        raise InvalidArgument("the secret of a webhook is printable ASCII, and not long", code="invalid_secret")
    if secret and form == NATIVE and not secret.startswith(SECRET_PREFIX):
        raise InvalidArgument("the secret of a webhook is made by the server", code="invalid_secret")
    try:
        parts = urlsplit(url)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        fine = False
    if not fine or len(url) > limits.WEBHOOK_URL_CHARS_MAX or not url.isascii() or "@" in parts.netloc:
        raise InvalidArgument(
            f"{url[:200]!r} is not an address that can be posted to",
            code="invalid_url",
            hint="It looks like https://example.org/hook, without a user or a password in it.",
        )
    if len(actions) > 20 or not all(action.startswith("sandbox.") and is_text(action) for action in actions):
        raise InvalidArgument(
            "a webhook hears of events of sandboxes only",
            code="invalid_actions",
            hint="Such as sandbox.running, sandbox.killed or sandbox.*; none means all of these.",
        )
    if any(len(action) > 64 or " " in action for action in actions):
        raise InvalidArgument("an action is too long", code="invalid_actions")


async def _wait_then_cancel(event: anyio.Event, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


def _work(connection: Connection, now: datetime, busy: list[str], room: int) -> Work:
    due = rows.due(connection, now, room, busy)
    return Work(due, rows.next_due(connection, busy), rows.any_listens(connection))


def _claim(connection: Connection, deliveries: list[Delivery], until: datetime) -> list[Delivery]:
    """Those of which nobody else was faster."""
    return [delivery for delivery in deliveries if rows.claim(connection, delivery, until)]


def _add(connection: Connection, hook: Webhook, event: Event) -> None:
    if len(rows.of_owner(connection, hook.owner)) >= limits.WEBHOOKS_PER_TENANT_MAX:
        raise LimitExceeded("the tenant has too many webhooks", code="too_many_webhooks", hint="Remove some.")
    rows.add(connection, hook)
    event_rows.add(connection, event)


def _change(connection: Connection, hook: Webhook, event: Event) -> None:
    if rows.change(connection, hook):
        event_rows.add(connection, event)


def _remove(connection: Connection, hook_id: str, event: Event) -> None:
    if rows.remove(connection, event.owner, hook_id, event.at):
        event_rows.add(connection, event)


def _deliveries(connection: Connection, hook_id: str) -> list[Shown]:
    found = rows.deliveries(connection, hook_id, limits.PAGE_ITEMS_MAX)
    return [Shown(one, event_rows.by_number(connection, one.event_number)) for one in found]
