"""Metric names, in one place, the registry that a server shows at /metrics, and traces where the operator wants them.

Traces need the extra `otel`. Without it, or without an address to send them to, `Tracing.span` costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from atoll.model import limits
from atoll.model.errors import Unavailable
from atoll.wire.node import NodeStatus

CONTENT_TYPE = CONTENT_TYPE_LATEST

HTTP_REQUEST_S = "atoll_http_request_seconds"
SANDBOXES = "atoll_sandboxes"
SANDBOX_CREATE_S = "atoll_sandbox_create_seconds"
SANDBOX_ENDS = "atoll_sandbox_ends"
EVENTS_LOST = "atoll_events_lost"
USAGE_SAMPLES_MISSED = "atoll_usage_samples_missed"
CLAIM_FAILURES = "atoll_claim_failures"
REQUESTS_REFUSED = "atoll_requests_refused"
WEBHOOK_DELIVERIES = "atoll_webhook_deliveries"
WARM = "atoll_warm_sandboxes"
CREATES_WAITING = "atoll_creates_waiting"
NODE_MEMORY = "atoll_node_memory_bytes"
NODE_DISK = "atoll_node_disk_bytes"
SERVER = "atoll_server"

# A command's round trip is milliseconds, a cold create a second, a stream as long as its process.
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """The metrics of one server. Each has its own registry, so that two servers in one process do not mix."""

    def __init__(self, version: str = "") -> None:
        self.registry = CollectorRegistry()
        self.http_request_s = Histogram(
            HTTP_REQUEST_S,
            "Time from a request to the end of its answer.",
            ("method", "route", "status"),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.sandboxes = Gauge(SANDBOXES, "Sandboxes on record, by state.", ("state",), registry=self.registry)
        self.sandbox_create_s = Histogram(
            SANDBOX_CREATE_S,
            "Time to create a sandbox, by the way it came to be (pool, shell, image, boot), or failed.",
            ("outcome",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.sandbox_ends = Counter(
            SANDBOX_ENDS, "Sandboxes that ended, by reason.", ("reason",), registry=self.registry
        )

        self.warm = Gauge(
            WARM,
            "Sandboxes that wait for an owner, by template.",
            ("template", "kind"),
            registry=self.registry,
        )
        self.events_lost = Counter(
            EVENTS_LOST, "Entries of the audit log that were lost while the database was away.", registry=self.registry
        )
        self.usage_samples_missed = Counter(
            USAGE_SAMPLES_MISSED,
            "Samples of sandboxes that the node could not give; their time was counted without.",
            registry=self.registry,
        )
        self.claim_failures = Counter(
            CLAIM_FAILURES,
            "Claims that failed, by what was claimed; the sandbox came by a slower way.",
            ("way",),
            registry=self.registry,
        )
        self._claims_failed = 0  # of those, after their answer, as far as they have been counted
        self.requests_refused = Counter(
            REQUESTS_REFUSED, "Requests refused by key, scope, quota or rate.", ("code",), registry=self.registry
        )
        self.webhook_deliveries = Counter(
            WEBHOOK_DELIVERIES, "Attempts to deliver to a webhook, by outcome.", ("state",), registry=self.registry
        )

        self.creates_waiting = Gauge(
            CREATES_WAITING, "Creates that stand in line for their turn.", registry=self.registry
        )
        self.node_memory = Gauge(
            NODE_MEMORY, "Memory of the machine: total, available, promised.", ("kind",), registry=self.registry
        )
        self.node_disk = Gauge(NODE_DISK, "The disk pool: total, free.", ("kind",), registry=self.registry)
        Info(SERVER, "The version that runs.", registry=self.registry).info({"version": version})
        ProcessCollector(registry=self.registry)

    def show_node(self, node: NodeStatus, creates_waiting: int) -> None:
        """What is true at this moment, for whoever looks now."""
        self.claim_failures.labels("pool").inc(node.claims_failed - self._claims_failed)
        self._claims_failed = node.claims_failed
        for template, count in node.warm.items():
            self.warm.labels(template, "live").set(count.live)
            self.warm.labels(template, "shell").set(count.shells)
        self.creates_waiting.set(creates_waiting)
        self.node_memory.labels("total").set(node.memory_total_bytes)
        self.node_memory.labels("available").set(node.memory_available_bytes)
        self.node_memory.labels("promised").set(node.memory_promised_bytes)
        self.node_disk.labels("total").set(node.disk_total_bytes)
        self.node_disk.labels("free").set(node.disk_free_bytes)

    def render(self, sandboxes_by_state: Mapping[str, int]) -> bytes:
        """All metrics in the text format of Prometheus."""
        for state, count in sandboxes_by_state.items():
            self.sandboxes.labels(state).set(count)
        return generate_latest(self.registry)


class Tracing:
    """Spans of requests, for a collector that speaks OpenTelemetry. `provider` is its SDK's; None makes no spans."""

    def __init__(self, provider: Any = None) -> None:
        self._provider = provider
        self._tracer = None if provider is None else provider.get_tracer("atoll")

    @classmethod
    def to(cls, url: str) -> Tracing:
        """Spans sent to a collector by OTLP over HTTP, in the background."""
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ModuleNotFoundError as error:
            raise Unavailable(
                f"traces need a package that is not installed ({error.name})",
                code="not_installed",
                hint="pip install 'atoll[otel]'",
            ) from error
        provider = TracerProvider(resource=Resource.create({"service.name": "atoll"}), shutdown_on_exit=False)
        # A collector that is away must not hold up a server that stops: the time holds for all attempts together.
        exporter = OTLPSpanExporter(endpoint=url.rstrip("/") + "/v1/traces", timeout=limits.TRACE_EXPORT_S_MAX)
        provider.add_span_processor(BatchSpanProcessor(exporter))
        return cls(provider)

    @contextmanager
    def span(self, name: str, headers: Mapping[str, str]) -> Iterator[dict[str, str | int]]:
        """A span around a request; goes on with the caller's trace (`traceparent`). What is put in describes it."""
        found: dict[str, str | int] = {}
        if self._tracer is None:
            yield found
            return
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        context = TraceContextTextMapPropagator().extract(headers)
        with self._tracer.start_as_current_span(name, context=context, kind=SpanKind.SERVER) as span:
            try:
                yield found
            finally:
                span.update_name(str(found.get("http.route", name)))
                span.set_attributes(found)

    def close(self) -> None:
        """Send what is left, for a bounded time."""
        if self._provider is not None:
            self._provider.shutdown()
