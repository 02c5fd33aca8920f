"""The edge as a whole: ids, errors of every kind, health, metrics, and the API's own description."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import anyio
import pytest

from atoll.api.app import create_app
from atoll.control.keys import KeySpec
from atoll.control.turnstile import Turnstile
from atoll.model import limits
from atoll.model.quota import Quota
from atoll.testing.asgi import Caller
from atoll.wire.node import WarmCount

pytestmark = pytest.mark.anyio


def check_problem(answer: Any, status: int, code: str) -> None:
    assert answer.status == status, answer.body
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert (problem["status"], problem["code"]) == (status, code)
    assert problem["request_id"] == answer.headers["x-request-id"]
    assert problem["detail"]


@pytest.mark.parametrize(
    ("method", "target", "body", "status", "code"),
    [
        ("GET", "/nope", None, 404, "not_found"),
        ("GET", "/v1/sandboxes/", None, 404, "not_found"),
        ("PATCH", "/v1/sandboxes", None, 405, "method_not_allowed"),
        ("POST", "/v1/sandboxes", b"{", 400, "invalid_body"),
        ("POST", "/v1/sandboxes", b"\xff", 400, "invalid_body"),
        ("POST", "/v1/sandboxes", [], 400, "invalid_body"),
        ("POST", "/v1/sandboxes", {"timeout": 5}, 400, "invalid_body"),
        ("POST", "/v1/sandboxes", {"timeout_s": "5"}, 400, "invalid_body"),
        ("POST", "/v1/sandboxes", {"resources": {"memory_bytes": -1}}, 400, "invalid_resources"),
        ("POST", "/v1/sandboxes", {"resources": {"memory_bytes": 2**70}}, 400, "invalid_resources"),
        ("POST", "/v1/sandboxes", {"timeout_s": -5}, 400, "invalid_timeout"),
        ("POST", "/v1/sandboxes", {"template": "nope"}, 404, "template_not_found"),
        ("POST", "/v1/sandboxes", b"[" * 100_000, 400, "invalid_body"),
        ("GET", "/v1/sandboxes?limit=0", None, 400, "invalid_query"),
        ("GET", "/v1/sandboxes?limit=x", None, 400, "invalid_query"),
        ("GET", "/v1/sandboxes?limit=1&limit=2", None, 400, "invalid_query"),
        ("GET", "/v1/sandboxes?nope=1", None, 400, "invalid_query"),
        ("GET", "/v1/sandboxes?state=nope", None, 400, "invalid_query"),
        ("GET", "/v1/sandboxes?metadata=nope", None, 400, "invalid_query"),
        ("GET", "/v1/sandboxes?cursor=nope", None, 400, "invalid_cursor"),
        ("GET", "/v1/sandboxes/nope", None, 404, "sandbox_not_found"),
        ("DELETE", "/v1/sandboxes/nope", None, 404, "sandbox_not_found"),
        ("GET", "/v1/sandboxes?" + "&".join(f"metadata=a{n}=b" for n in range(500)), None, 400, "invalid_query"),
    ],
)
async def test_bad_input_has_its_own_code(
    edge: Any, method: str, target: str, body: Any, status: int, code: str
) -> None:
    check_problem(await edge.ask(method, target, body), status, code)
    assert edge.node.orders == []


async def test_a_method_that_is_not_allowed_says_which_are(edge: Any) -> None:
    answer = await edge.ask("PATCH", "/v1/sandboxes")
    assert answer.headers["allow"] == "GET, POST"


async def test_a_body_is_bounded_by_its_announcement_and_while_it_comes(edge: Any) -> None:
    announced = {"content-length": str(limits.JSON_BODY_BYTES_MAX + 1)}
    check_problem(await edge.ask("POST", "/v1/sandboxes", b"{}", headers=announced), 413, "too_large")
    taken = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal taken
        while True:
            taken += limits.MIB
            yield b" " * limits.MIB

    check_problem(await edge.ask("POST", "/v1/sandboxes", chunks=endless()), 413, "too_large")
    assert taken <= limits.JSON_BODY_BYTES_MAX + limits.MIB


async def test_our_own_bug_is_a_500_that_says_nothing(edge: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object) -> None:
        raise ZeroDivisionError("a secret of the inside")

    monkeypatch.setattr(edge.control, "sandbox_get", broken)
    answer = await edge.ask("GET", "/v1/sandboxes/x")
    check_problem(answer, 500, "internal")
    assert b"secret" not in answer.body
    assert b"ZeroDivision" not in answer.body


async def test_a_request_id_of_the_caller_is_kept_if_it_is_harmless(edge: Any) -> None:
    answer = await edge.ask("GET", "/health", headers={"x-request-id": "run-7.a"})
    assert answer.headers["x-request-id"] == "run-7.a"
    answer = await edge.ask("GET", "/health", headers={"x-request-id": "x\r\nset-cookie: a"})
    assert "cookie" not in answer.headers["x-request-id"]


async def test_health_needs_no_key_and_metrics_only_if_told_so(edge: Any) -> None:
    stranger = Caller(edge.app)
    assert (await stranger.ask("GET", "/health")).json()["status"] == "ok"
    assert (await stranger.ask("GET", "/metrics")).status == 200
    closed = Caller(create_app(edge.control, metrics_open=False))
    check_problem(await closed.ask("GET", "/metrics"), 401, "unauthenticated")


async def test_metrics_count_requests_by_route_and_sandboxes_by_state(inside: Any) -> None:
    await inside.ask("GET", "~")
    text = (await inside.ask("GET", "/metrics")).body.decode()
    assert 'route="/v1/sandboxes/{sandbox}",status="200"' in text
    assert inside.sandbox not in text
    assert 'atoll_sandboxes{state="running"} 1.0' in text
    assert 'atoll_sandbox_create_seconds_count{outcome="boot"} 1.0' in text


async def test_metrics_count_what_was_refused_by_key_scope_quota_and_rate(edge: Any) -> None:
    """Each once, wherever it was refused; what is wrong in another way is not among them."""
    keys = edge.control.accounts.keys
    asked: list[tuple[KeySpec, int]] = [
        (KeySpec("reader", scopes=frozenset({"read"})), 403),
        (KeySpec("small", quota=Quota(sandboxes=0)), 429),
        (KeySpec("slow", quota=Quota(requests_per_second=0)), 429),
    ]
    for spec, status in asked:
        _, key = await keys.create(None, "default", spec)
        assert (await Caller(edge.app, key).ask("POST", "/v1/sandboxes", {})).status == status
    assert (await Caller(edge.app).ask("POST", "/v1/sandboxes", {})).status == 401
    assert (await edge.ask("POST", "/v1/sandboxes", {"template": "none"})).status == 404
    text = (await edge.ask("GET", "/metrics")).body.decode()
    counted = {line for line in text.splitlines() if line.startswith("atoll_requests_refused_total{")}
    codes = ("scope_missing", "quota_exceeded", "rate_limited", "unauthenticated")
    assert counted == {f'atoll_requests_refused_total{{code="{code}"}} 1.0' for code in codes}


async def test_metrics_show_the_pool_and_its_failures(edge: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    status = replace(edge.node.status(), warm={"base": WarmCount(live=3, shells=2)}, claims_failed=1)
    monkeypatch.setattr(edge.node, "status", lambda: status)
    lines = (await edge.ask("GET", "/metrics")).body.decode().splitlines()
    assert 'atoll_warm_sandboxes{kind="live",template="base"} 3.0' in lines
    assert 'atoll_warm_sandboxes{kind="shell",template="base"} 2.0' in lines
    status = replace(status, warm={"base": WarmCount(live=0, shells=4)}, claims_failed=3)
    lines = (await edge.ask("GET", "/metrics")).body.decode().splitlines()
    assert 'atoll_warm_sandboxes{kind="live",template="base"} 0.0' in lines
    assert 'atoll_warm_sandboxes{kind="shell",template="base"} 4.0' in lines
    assert 'atoll_claim_failures_total{way="pool"} 3.0' in lines, "each is counted once, however often somebody looks"


async def test_the_line_of_creates_is_shown_and_ends(edge: Any) -> None:
    """Who comes after its end is refused at once, and told to come back; those in it get what they wait for."""
    edge.control._sandboxes._turnstile = Turnstile(1, 2)
    edge.node.create_gate = anyio.Event()
    made: list[int] = []

    async def create() -> None:
        made.append((await edge.ask("POST", "/v1/sandboxes", {})).status)

    async def waiting() -> str:
        lines: list[str] = (await edge.ask("GET", "/metrics")).body.decode().splitlines()
        return next(line for line in lines if line.startswith("atoll_creates_waiting "))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(create)
            while await waiting() != "atoll_creates_waiting 2.0":
                await anyio.sleep(0.01)
            answer = await edge.ask("POST", "/v1/sandboxes", {})
            check_problem(answer, 503, "create_queue_full")
            assert answer.json()["retryable"]
            edge.node.create_gate.set()
    assert made == [201] * 3
    assert await waiting() == "atoll_creates_waiting 0.0"
    assert len(edge.node.guests) == 3, "what was refused has left nothing"


async def test_templates_and_node(edge: Any) -> None:
    assert [item["name"] for item in (await edge.ask("GET", "/v1/templates")).json()["items"]] == ["base", "code"]
    assert (await edge.ask("GET", "/v1/node")).json()["sandboxes"] == 0


async def test_many_requests_at_once(edge: Any) -> None:
    async def create() -> None:
        assert (await edge.ask("POST", "/v1/sandboxes", {})).status == 201

    async with anyio.create_task_group() as tasks:
        for _ in range(200):
            tasks.start_soon(create)
    assert len(edge.node.guests) == 200
