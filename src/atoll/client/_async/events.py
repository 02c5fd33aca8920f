"""The audit log, and webhooks, which bring it to you."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from datetime import datetime

from atoll.client import _exchange as exchange
from atoll.client._async.asking import ask, tell
from atoll.client._twins import async_sleep
from atoll.model import limits
from atoll.model.errors import AtollError
from atoll.wire.public import (
    DeliveryList,
    DeliveryView,
    EventPage,
    EventView,
    WebhookCreate,
    WebhookList,
    WebhookView,
)

_HOOKS = "/v1/webhooks"
Views = list[EventView]  # inside the class `list` is its own method
HookViews = list[WebhookView]
DeliveryViews = list[DeliveryView]


class AsyncEvents:
    """Who did what to what, from where, with which result.

    Example:
        async for event in AsyncEvents.follow(actions=["sandbox.*"]):
            print(event.at, event.action, event.target, event.result)
    """

    @classmethod
    async def list(
        cls,
        *,
        actions: Sequence[str] = (),
        target: str | None = None,
        actor: str | None = None,
        result: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        after: int | None = None,
        all_tenants: bool = False,
        limit: int = 100,
        url: str | None = None,
        api_key: str | None = None,
    ) -> Views:
        """The newest events, oldest of them first; or the first ones `after` a number. An action may end with `*`.

        Example:
            print(await AsyncEvents.list(target=sb.id))
        """
        filters = exchange.event_filters(actions, target, actor, result, since, until, all_tenants)
        place = [] if after is None else [("after", str(after))]
        path = "/v1/events" + exchange.query_pairs([*filters, *place, ("limit", str(limit))])
        return (await ask("GET", path, EventPage, url=url, api_key=api_key)).items

    @classmethod
    async def follow(
        cls,
        *,
        after: int | None = None,
        last: int = 0,
        actions: Sequence[str] = (),
        target: str | None = None,
        actor: str | None = None,
        result: str | None = None,
        all_tenants: bool = False,
        url: str | None = None,
        api_key: str | None = None,
    ) -> AsyncIterator[EventView]:
        """Events as they come, without an end; after the one with the number `after`, or the `last` so many first.

        Nothing is missed on the way, also not when the server is restarted: once it has answered, it is asked again for
        ten minutes before its error is raised. Then go on `after` the last that you have seen.

        Example:
            async for event in AsyncEvents.follow():
                print(event.action)
        """
        filters = exchange.event_filters(actions, target, actor, result, None, None, all_tenants)
        begun = after is None
        if after is None:
            path = "/v1/events" + exchange.query_pairs([*filters, ("limit", str(max(1, last)))])
            newest = await ask("GET", path, EventPage, url=url, api_key=api_key)
            for event in newest.items[:last]:
                yield event
            after = newest.next
        attempt = 0
        while True:
            wait = [("after", str(after)), ("wait_s", f"{limits.EVENT_WAIT_S_MAX:g}")]
            path = "/v1/events" + exchange.query_pairs([*filters, *wait])
            try:
                page = await ask("GET", path, EventPage, url=url, api_key=api_key)
            except AtollError as error:
                attempt += 1
                delay_s = exchange.follow_delay_s(error, attempt, random.random()) if begun else None  # noqa: S311
                if delay_s is None:
                    raise
                await async_sleep(delay_s)
                continue
            begun, attempt = True, 0
            for event in page.items:
                yield event
            after = page.next


class AsyncWebhooks:
    """Have events of sandboxes posted to an address of yours, signed as Standard Webhooks says.

    Example:
        hook = await AsyncWebhooks.create("https://example.org/hook", actions=["sandbox.killed", "sandbox.failed"])
        print(hook.secret)
    """

    @classmethod
    async def create(
        cls, target: str, *, actions: Sequence[str] = (), url: str | None = None, api_key: str | None = None
    ) -> WebhookView:
        """Add a webhook; no actions means all of them.

        Example:
            hook = await AsyncWebhooks.create("https://example.org/hook")
        """
        body = WebhookCreate(url=target, actions=list(actions))
        return await ask("POST", _HOOKS, WebhookView, body, url=url, api_key=api_key)

    @classmethod
    async def list(cls, *, url: str | None = None, api_key: str | None = None) -> HookViews:
        """All webhooks of your tenant.

        Example:
            print([hook.url for hook in await AsyncWebhooks.list()])
        """
        return (await ask("GET", _HOOKS, WebhookList, url=url, api_key=api_key)).items

    @classmethod
    async def remove(cls, webhook_id: str, *, url: str | None = None, api_key: str | None = None) -> None:
        """Remove a webhook; what has not been delivered to it is forgotten.

        Example:
            await AsyncWebhooks.remove(hook.id)
        """
        await tell("DELETE", f"{_HOOKS}/{exchange.segment(webhook_id)}", url=url, api_key=api_key)

    @classmethod
    async def deliveries(cls, webhook_id: str, *, url: str | None = None, api_key: str | None = None) -> DeliveryViews:
        """The newest deliveries, and how they went.

        Example:
            print([(one.action, one.state, one.error) for one in await AsyncWebhooks.deliveries(hook.id)])
        """
        path = f"{_HOOKS}/{exchange.segment(webhook_id)}/deliveries"
        return (await ask("GET", path, DeliveryList, url=url, api_key=api_key)).items
