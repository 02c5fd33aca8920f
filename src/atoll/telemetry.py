"""Metric names, in one place, and the registry that a server shows at /metrics."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

CONTENT_TYPE = CONTENT_TYPE_LATEST

HTTP_REQUEST_S = "atoll_http_request_seconds"
SANDBOXES = "atoll_sandboxes"
SANDBOX_CREATE_S = "atoll_sandbox_create_seconds"
SANDBOX_ENDS = "atoll_sandbox_ends"

# A command's round trip is milliseconds, a cold create a second, a stream as long as its process.
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """The metrics of one server. Each has its own registry, so that two servers in one process do not mix."""

    def __init__(self) -> None:
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
            "Time to create a sandbox, by outcome.",
            ("outcome",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.sandbox_ends = Counter(
            SANDBOX_ENDS, "Sandboxes that ended, by reason.", ("reason",), registry=self.registry
        )

    def render(self, sandboxes_by_state: Mapping[str, int]) -> bytes:
        """All metrics in the text format of Prometheus."""
        for state, count in sandboxes_by_state.items():
            self.sandboxes.labels(state).set(count)
        return generate_latest(self.registry)
