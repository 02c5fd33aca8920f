"""Traces: a span for each request, in the caller's trace, and nothing without a collector."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from atoll.api.tracing import Traced
from atoll.telemetry import Tracing
from atoll.testing.asgi import Caller

pytestmark = pytest.mark.anyio


async def test_a_request_is_a_span_in_the_callers_trace(edge: Any) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing = Tracing(provider)
    caller = Caller(Traced(edge.app, tracing), edge.caller._key)
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    answer = await caller.ask("GET", "/v1/sandboxes/none", headers={"traceparent": parent, "x-request-id": "r1"})
    assert answer.status == 404
    tracing.close()
    (span,) = exporter.get_finished_spans()
    assert span.name == "/v1/sandboxes/{sandbox}"
    assert span.context is not None
    assert f"{span.context.trace_id:032x}" == "0af7651916cd43dd8448eb211c80319c"
    assert span.attributes is not None
    assert (span.attributes["http.response.status_code"], span.attributes["atoll.request_id"]) == (404, "r1")


async def test_without_a_collector_there_is_nothing_to_pay_for(edge: Any) -> None:
    caller = Caller(Traced(edge.app, Tracing()), edge.caller._key)
    assert (await caller.ask("GET", "/v1/sandboxes")).status == 200
