"""Traces of a real server, as a collector gets them: over HTTP, in OTLP's own encoding."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from atoll.testing.server import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.real


class Collector:
    """Takes what an exporter sends to /v1/traces, and keeps the spans by the service that they are of."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.services: set[str] = set()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                if self.path == "/v1/traces":
                    collector.take(ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.send_header("content-type", "application/x-protobuf")
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *arguments: object) -> None:
                """A test has its own words."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def take(self, request: ExportTraceServiceRequest) -> None:
        for resource in request.resource_spans:
            for attribute in resource.resource.attributes:
                if attribute.key == "service.name":
                    self.services.add(attribute.value.string_value)
            self.spans += [span for scope in resource.scope_spans for span in scope.spans]

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()
    yield collector
    collector.close()


def words(span: Span) -> dict[str, str | int]:
    return {one.key: one.value.string_value or one.value.int_value for one in span.attributes}


def test_spans_arrive_with_the_ids_of_request_and_sandbox(
    make_server: Callable[..., Server], collector: Collector
) -> None:
    server = make_server(ATOLL_OTEL_URL=collector.url)
    trace = "0af7651916cd43dd8448eb211c80319c"
    with server.create() as sandbox:
        headers = {"traceparent": f"00-{trace}-b7ad6b7169203331-01", "x-request-id": "mine"}
        assert server.request("GET", f"/v1/sandboxes/{sandbox.id}", headers=headers).status_code == 200
    wait_until(lambda: any(words(span).get("atoll.request_id") == "mine" for span in collector.spans), 30)
    (span,) = [span for span in collector.spans if words(span).get("atoll.request_id") == "mine"]
    assert span.trace_id.hex() == trace
    assert (span.name, words(span)["atoll.sandbox"]) == ("/v1/sandboxes/{sandbox}", sandbox.id)
    assert words(span)["http.response.status_code"] == 200
    assert span.end_time_unix_nano > span.start_time_unix_nano
    created = next(span for span in collector.spans if words(span).get("http.request.method") == "POST")
    assert words(created)["atoll.sandbox"] == sandbox.id
    assert collector.services == {"atoll"}


def test_a_collector_that_is_away_disturbs_nobody(make_server: Callable[..., Server]) -> None:
    """Not even a stop, which has spans to send; the fixture waits for it, and not for long."""
    server = make_server(ATOLL_OTEL_URL="http://127.0.0.1:9")
    assert server.request("GET", "/v1/sandboxes").status_code == 200
