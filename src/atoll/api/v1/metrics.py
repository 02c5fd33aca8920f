"""/v1/sandboxes/{sandbox}/metrics: what a sandbox uses now, per process, and over the last hour."""

from __future__ import annotations

from datetime import UTC, datetime

from atoll.api.endpoint import Call, Endpoint, Nothing
from atoll.api.v1 import guestwords, insidewords
from atoll.api.v1.sandboxes import ONE as SANDBOX
from atoll.model import limits
from atoll.model.errors import Conflict, GuestFailed, NotFound, TooLarge
from atoll.wire.public import MetricsHistory, MetricsSample, MetricsView, ProcessUsageList


async def now(call: Call[Nothing, Nothing]) -> MetricsView:
    sandbox = await call.control.guest(call.principal, call.path["sandbox"])
    words = await sandbox.call("metrics", {})
    return insidewords.metrics(words, *await sandbox.use())


async def processes(call: Call[Nothing, Nothing]) -> ProcessUsageList:
    sandbox = await call.control.guest(call.principal, call.path["sandbox"])
    async with sandbox.stream("metrics.processes", {}) as stream:
        found = guestwords.entries(stream, limits.SYSTEM_PROCESSES_MAX)
        used = [insidewords.process_usage(entry) async for entry in found]
        return ProcessUsageList(items=[entry for entry in used if entry is not None])


async def history(call: Call[Nothing, Nothing]) -> MetricsHistory:
    samples = await call.control.sandbox_series(call.principal, call.path["sandbox"])
    return MetricsHistory(
        every_s=limits.SAMPLE_EVERY_S,
        items=[
            MetricsSample(
                at=datetime.fromtimestamp(sample.at_s, UTC),
                cpu_s=sample.cpu_s,
                memory_bytes=sample.memory_bytes,
                disk_bytes=sample.disk_bytes,
                processes=sample.processes,
                network_received_bytes=sample.received_bytes,
                network_sent_bytes=sample.sent_bytes,
            )
            for sample in samples
        ],
    )


PATH = SANDBOX + "/metrics"
_ERRORS = (NotFound, Conflict, GuestFailed)

ENDPOINTS = (
    Endpoint("GET", PATH, "Show what a sandbox uses now", now, answer=MetricsView, errors=_ERRORS),
    Endpoint(
        "GET",
        PATH + "/processes",
        "Show what each process uses now",
        processes,
        answer=ProcessUsageList,
        errors=(*_ERRORS, TooLarge),
    ),
    Endpoint(
        "GET",
        PATH + "/history",
        "Show what a sandbox used in the last hour",
        history,
        answer=MetricsHistory,
        errors=_ERRORS,
    ),
)
