"""/v1/webhooks: have events of sandboxes posted to an address, and see how that went."""

from __future__ import annotations

from atoll.api.endpoint import Call, Endpoint, Nothing
from atoll.control.authz import ADMIN
from atoll.control.webhooks import Shown, Webhook
from atoll.model.errors import InvalidArgument, LimitExceeded, NotFound
from atoll.wire.public import DeliveryList, DeliveryView, WebhookCreate, WebhookList, WebhookView


async def create(call: Call[WebhookCreate, Nothing]) -> WebhookView:
    webhooks = call.control.accounts.webhooks
    return _view(await webhooks.create(call.principal, call.body.url, tuple(call.body.actions)))


async def list_all(call: Call[Nothing, Nothing]) -> WebhookList:
    found = await call.control.accounts.webhooks.every(call.principal.owner)
    return WebhookList(items=[_view(hook) for hook in found])


async def remove(call: Call[Nothing, Nothing]) -> None:
    await call.control.accounts.webhooks.remove(call.principal, call.path["webhook"])


async def deliveries(call: Call[Nothing, Nothing]) -> DeliveryList:
    found = await call.control.accounts.webhooks.deliveries(call.principal.owner, call.path["webhook"])
    return DeliveryList(items=[_delivery(shown) for shown in found])


def _view(hook: Webhook) -> WebhookView:
    return WebhookView(
        id=hook.id, url=hook.url, actions=list(hook.actions), secret=hook.secret, created_at=hook.created_at
    )


def _delivery(shown: Shown) -> DeliveryView:
    delivery, event = shown.delivery, shown.event
    return DeliveryView(
        id=delivery.id,
        event=delivery.event_number,
        action=event.action if event else "",
        target=event.target if event else "",
        state=delivery.state.value,
        attempts=delivery.attempts,
        status=delivery.status,
        error=delivery.error,
        due_at=delivery.due_at,
        updated_at=delivery.updated_at,
    )


PATH = "/v1/webhooks"
ONE = PATH + "/{webhook}"

ENDPOINTS = (
    Endpoint(
        "POST",
        PATH,
        "Have events of sandboxes posted to an address, signed",
        create,
        body=WebhookCreate,
        answer=WebhookView,
        status=201,
        needs=ADMIN,
        errors=(InvalidArgument, LimitExceeded),
    ),
    Endpoint("GET", PATH, "List the webhooks", list_all, answer=WebhookList, needs=ADMIN),
    Endpoint("DELETE", ONE, "Remove a webhook", remove, needs=ADMIN, errors=(NotFound,)),
    Endpoint(
        "GET",
        ONE + "/deliveries",
        "Show the newest deliveries of a webhook, and how they went",
        deliveries,
        answer=DeliveryList,
        needs=ADMIN,
        errors=(NotFound,),
    ),
)
