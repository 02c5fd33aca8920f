"""E2B's webhooks: made over REST, because no package has a method for them, and told to a real receiver."""

from __future__ import annotations

import base64
import hashlib
import http.server
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from atoll.testing.server import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.real

SECRET = "a-secret-of-the-receiver"
KINDS = ["sandbox.lifecycle.created", "sandbox.lifecycle.killed"]


class Receiver(http.server.ThreadingHTTPServer):
    """Keeps what it is sent."""

    daemon_threads = True

    def __init__(self) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/hook"


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.got.append(({name.lower(): value for name, value in self.headers.items()}, body))  # type: ignore[attr-defined]
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def test_a_receiver_hears_in_their_words_with_their_signature(
    make_server: Callable[..., Server], receiver: Receiver
) -> None:
    server = make_server(ATOLL_WEBHOOK_PRIVATE="true", ATOLL_WARM_SIZE="0")

    def ask(method: str, path: str = "", **body: Any) -> Any:
        answer = server.request(method, f"/events/webhooks{path}", json=body or None)
        assert answer.status_code < 300, answer.text
        return answer.json() if answer.content else None

    made = ask("POST", name="mine", url=receiver.url, events=KINDS, signatureSecret=SECRET)
    assert (made["name"], made["enabled"], made["events"]) == ("mine", True, KINDS)
    assert SECRET not in json.dumps([made, ask("GET"), ask("GET", f"/{made['id']}")])
    sandbox = server.request("POST", "/v2/sandboxes", json={"templateID": "base", "timeout": 60}).json()["sandboxID"]
    server.request("POST", f"/sandboxes/{sandbox}/pause", json={})
    server.request("POST", f"/sandboxes/{sandbox}/connect", json={"timeout": 60})  # of which nobody wants to hear
    server.request("DELETE", f"/sandboxes/{sandbox}")
    wait_until(lambda: len(receiver.got) >= 2, 20)
    told = sorted((json.loads(body)["type"], json.loads(body)["sandboxId"]) for _, body in receiver.got)
    assert told == [(kind, sandbox) for kind in KINDS]
    for headers, body in receiver.got:
        digest = hashlib.sha256(SECRET.encode() + body).digest()
        assert headers["e2b-signature"] == base64.b64encode(digest).decode().rstrip("=")
        assert (json.loads(body)["sandboxTemplateId"], json.loads(body)["sandboxTeamId"]) == ("base", "default")
        assert (headers["e2b-webhook-id"], headers["e2b-signature-version"]) == (made["id"], "v1")
    assert len({headers["e2b-delivery-id"] for headers, _ in receiver.got}) == 2

    changed = ask("PATCH", f"/{made['id']}", enabled=False, events=["sandbox.lifecycle.paused"])
    assert (changed["enabled"], changed["events"]) == (False, ["sandbox.lifecycle.paused"])
    assert server.request("POST", "/events/webhooks", json={"url": receiver.url, "events": ["no"]}).status_code == 400
    ask("DELETE", f"/{made['id']}")
    assert ask("GET") == []
    assert server.request("GET", f"/events/webhooks/{made['id']}").status_code == 404
