"""Pages of other sites: what a browser asks before it sends, and what it lets them read."""

from __future__ import annotations

import pytest

from tests.unit.api.compat.e2b.conftest import Inside

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_browser_may_ask_before_it_sends(inside: Inside) -> None:
    """It shows nothing then: neither a token, nor the headers that it asks about."""
    asked = {"access-control-request-method": "POST", "access-control-request-headers": "content-type,x-metadata-a"}
    headers = {"host": "127.0.0.1:7070", "origin": "https://page.example", **asked}
    answer = await inside.caller.ask("OPTIONS", "/files?path=a&signature=v1_x", headers=headers)
    assert (answer.status, answer.body) == (204, b"")
    assert answer.headers["access-control-allow-origin"] == "*"
    assert answer.headers["access-control-allow-methods"] == "POST"
    assert answer.headers["access-control-allow-headers"] == asked["access-control-request-headers"]
    plain = await inside.caller.ask("OPTIONS", "/files", headers={"host": "127.0.0.1:7070"})
    assert plain.status == 404


async def test_a_page_may_read_what_the_agent_answers_and_nothing_else(inside: Inside) -> None:
    inside.guest.files["/home/user/a"] = b"1"
    for target, status in (("/files?path=a", 200), ("/files?path=b", 404), ("/health", 204)):
        answer = await inside.ask("GET", target, origin="https://page.example")
        assert (answer.status, answer.headers["access-control-allow-origin"]) == (status, "*")
    answer = await inside.ask("GET", "/contexts", e2b_sandbox_port="49999")
    assert "access-control-allow-origin" not in answer.headers
    answer = await inside.caller.ask("GET", "/v2/sandboxes", headers={"host": "127.0.0.1:7070"})
    assert (answer.status, "access-control-allow-origin" in answer.headers) == (401, False)
