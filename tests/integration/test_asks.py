"""Ask mode with a program in the place of a person: a webhook hears of a question, and its receiver answers it."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from atoll.control.webhooks import signature
from atoll.testing.server import Server
from tests.upstream import HTTP_PORT, Upstream
from tests.waiting import wait_until

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def server(servers: Upstream, make_data_dir: Callable[[], Path]) -> Iterator[Server]:
    running = Server(make_data_dir(), servers.settings | {"ATOLL_WEBHOOK_PRIVATE": "1"})
    running.start()
    yield running
    running.close()


class Receiver(http.server.ThreadingHTTPServer):
    """Answers each question through the API, with the word for its host, before it thanks for the delivery."""

    daemon_threads = True

    def __init__(self, server: Server) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.atoll = server
        self.words: dict[str, list[str]] = {}
        self.questions: list[dict[str, Any]] = []
        self.answers: list[tuple[str, str, int]] = []
        self.url = f"http://127.0.0.1:{self.server_port}/asks"
        answer = server.request("POST", "/v1/webhooks", json={"url": self.url, "actions": ["sandbox.asks"]})
        assert answer.status_code == 201, answer.text
        self.hook = answer.json()

    def hear(self, event: dict[str, Any]) -> None:
        self.questions.append(event)
        host, ask = event["detail"]["name"], event["detail"]["request"]
        word = self.words[host].pop(0)
        path = f"/v1/sandboxes/{event['target']}/network/asks/{ask}"
        self.answers.append((host, word, self.atoll.request("POST", path, json={"answer": word}).status_code))


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        made = signature(
            self.server.hook["secret"], self.headers["webhook-id"], self.headers["webhook-timestamp"], body
        )
        genuine = self.headers["webhook-signature"] == made
        if genuine:
            self.server.hear(json.loads(body)["event"])
        self.send_response(200 if genuine else 401)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def receiver(server: Server) -> Iterator[Receiver]:
    with Receiver(server) as receiver:
        thread = threading.Thread(target=receiver.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        yield receiver
        server.request("DELETE", f"/v1/webhooks/{receiver.hook['id']}")
        receiver.shutdown()
        thread.join(5)


def test_a_webhook_allows_once_always_or_refuses(server: Server, receiver: Receiver) -> None:
    """Once is for this connection only, always is a rule from then on, a refusal cuts the connection."""
    receiver.words = {"good.test": ["once", "refuse"], "twin.test": ["always"], "other.test": ["refuse"]}
    with server.create(policy={"ask": True, "ask_s": 30}) as sandbox:

        def fetch(host: str) -> str:
            return sandbox.commands.run(f"curl -sS --max-time 40 http://{host}:{HTTP_PORT}/asked").stdout

        assert "GET /asked" in fetch("good.test")
        assert "GET /asked" not in fetch("good.test"), "the next one is a new question, and was refused"
        assert ["GET /asked" in fetch("twin.test") for _ in range(3)] == [True] * 3, "nobody is asked again"
        assert "GET /asked" not in fetch("other.test")
        wait_until(lambda: len(receiver.answers) == 4, 10, "a connection goes on before its answer is thanked for")
        assert sorted(receiver.answers) == [
            ("good.test", "once", 200),
            ("good.test", "refuse", 200),
            ("other.test", "refuse", 200),
            ("twin.test", "always", 200),
        ]
        assert sandbox.network.policy().allow == [f"twin.test:{HTTP_PORT}"]
        assert {question["target"] for question in receiver.questions} == {sandbox.id}
        assert {question["detail"]["port"] for question in receiver.questions} == {str(HTTP_PORT)}
        reasons = [event.reason for event in sandbox.network.status().events if event.kind == "connection"]
        assert reasons.count("ask_refused") == 2

        def delivered() -> bool:
            found = server.request("GET", f"/v1/webhooks/{receiver.hook['id']}/deliveries").json()["items"]
            return [(one["state"], one["status"]) for one in found] == [("delivered", 200)] * 4

        wait_until(delivered, 10, "each delivery is on record")
