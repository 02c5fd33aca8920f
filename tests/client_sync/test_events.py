# Generated from tests/client_async/test_events.py by tools/unasync.py: change that file, not this one.
"""The audit log is followed through whatever a server, or what stands before it, says while it is restarted."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import pytest

from atoll.client import Events
from atoll.model import limits
from atoll.model.errors import ConnectionFailed, Forbidden, Unavailable


CUT = 0
"""In place of a status: the connection breaks."""


class Answers(BaseHTTPRequestHandler):
    """What a server answers, one after the other: so many events, a status that is none of success, or nothing."""

    script: ClassVar[list[tuple[int, int]]] = []
    asked: ClassVar[list[int | None]] = []

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        after = int(query["after"][0]) if "after" in query else None
        self.asked.append(after)
        status, count = self.script.pop(0)
        if status == CUT:
            self.close_connection = True
            return
        body = json.dumps(page(after or 0, count) if status == 200 else {"detail": "away"}).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: Any) -> None:
        pass


def page(after: int, count: int) -> dict[str, Any]:
    words = ("tenant", "actor", "action", "target", "source", "request_id")
    event = dict.fromkeys(words, "x") | {"at": "2026-01-01T00:00:00Z", "result": "ok", "detail": {}}
    items = [{**event, "number": after + number} for number in range(1, count + 1)]
    return {"items": items, "next": after + count}


@contextmanager
def answering(*script: tuple[int, int]) -> Iterator[str]:
    Answers.script[:], Answers.asked[:] = script, []
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CLIENT_BACKOFF_S", 0.001)


def follow(seen: list[int], url: str) -> None:
    for event in Events.follow(last=1, url=url, api_key="atoll_x"):
        seen.append(event.number)  # noqa: PERF401 - also those before an error


def test_following_goes_on_where_it_stopped_when_a_server_is_back() -> None:
    """After the last number that was seen; none twice and none left out."""
    cuts = [(CUT, 0)] * limits.CLIENT_ATTEMPTS_MAX
    seen: list[int] = []
    with answering((200, 1), (200, 2), (503, 0), (502, 0), *cuts, (504, 0), (200, 1), (403, 0)) as url:
        with pytest.raises(Forbidden):
            follow(seen, url)
        assert seen == [1, 2, 3, 4]
        assert [one for one in Answers.asked if one is not None] == [1, *[3] * 8, 4]


def test_a_server_that_never_answered_is_told_of_at_once() -> None:
    with answering((503, 0)) as url, pytest.raises(Unavailable):
        for _ in Events.follow(after=7, url=url, api_key="atoll_x"):
            pass
    assert Answers.asked == [7]
    with pytest.raises(ConnectionFailed):
        for _ in Events.follow(url=url, api_key="atoll_x"):
            pass


def test_a_server_that_stays_away_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FOLLOW_ATTEMPTS_MAX", 3)
    with answering((200, 0), *[(503, 0)] * 3) as url, pytest.raises(Unavailable):
        for _ in Events.follow(after=0, url=url, api_key="atoll_x"):
            pass
    assert len(Answers.asked) == 4


def test_what_follows_a_number_is_listed() -> None:
    with answering((200, 2)) as url:
        found = Events.list(after=5, url=url, api_key="atoll_x")
    assert ([event.number for event in found], Answers.asked) == ([6, 7], [5])
