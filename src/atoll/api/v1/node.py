"""What the server is and has: templates, the machine, health, metrics, and the description of the API itself."""

from __future__ import annotations

import dataclasses

import msgspec

from atoll import telemetry
from atoll.api.endpoint import Call, Endpoint, Nothing, Reply
from atoll.wire.public import Health, NodeView, TemplateList, TemplateView


async def templates(call: Call[Nothing, Nothing]) -> TemplateList:
    known = await call.control.templates(call.principal)
    return TemplateList(
        items=[TemplateView(name=one.name, key=one.key, user=one.user, workdir=one.workdir) for one in known]
    )


async def node(call: Call[Nothing, Nothing]) -> NodeView:
    return msgspec.convert(dataclasses.asdict(call.control.node_status()), NodeView)


async def metrics(call: Call[Nothing, Nothing]) -> Reply:
    call.control.metrics.show_node(call.control.node_status(), call.control.creates_waiting())
    text = call.control.metrics.render(await call.control.sandbox_counts())
    return Reply(text, media_type=telemetry.CONTENT_TYPE)


ENDPOINTS = (
    Endpoint(
        "GET", "/v1/templates", "List the templates that sandboxes can start from", templates, answer=TemplateList
    ),
    Endpoint("GET", "/v1/node", "Show what the machine has and how much of it is used", node, answer=NodeView),
)


def open_endpoints(version: str, *, metrics_open: bool) -> tuple[Endpoint[Nothing, Nothing], ...]:
    """What needs no key; the metrics do, unless the operator has opened them."""

    async def health(call: Call[Nothing, Nothing]) -> Health:  # noqa: ARG001 - being called is all there is to it
        return Health(status="ok", version=version)

    return (
        Endpoint("GET", "/health", "Say that the server answers", health, answer=Health, public=True),
        Endpoint(
            "GET",
            "/metrics",
            "Show metrics in the text format of Prometheus",
            metrics,
            gives={"text/plain": None},
            public=metrics_open,
        ),
    )
