"""A thousand requests at once, on a thousand connections: each is answered, or refused with a code; then it is calm."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from atoll.testing.server import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.real

CROWD = 1000
PATIENCE_S = 100


def descriptors(server: Server) -> int:
    return len(list(Path(f"/proc/{server.pid}/fd").iterdir()))


def wishes(sandbox_id: str) -> list[tuple[str, str, dict[str, object] | None]]:
    """What each of them asks for: looking, running, creating, and things that are refused."""
    one = f"/v1/sandboxes/{sandbox_id}"
    return [
        ("GET", one, None),
        ("GET", "/v1/sandboxes?limit=10", None),
        ("POST", f"{one}/processes", {"cmd": "true"}),
        ("GET", "/v1/sandboxes/none", None),
        ("POST", "/v1/sandboxes", {"template": "none"}),
        ("GET", f"{one}/files/content?path=/etc/hostname", None),
        ("PUT", f"{one}/deadline", {"timeout_s": 600}),
        ("POST", "/v1/sandboxes", {"resources": {"memory_bytes": 2**50}}),
        ("GET", "/v1/templates", None),
        ("GET", "/metrics", None),
    ]


def request_bytes(server: Server, method: str, path: str, body: dict[str, object] | None) -> bytes:
    content = b"" if body is None else json.dumps(body).encode()
    head = [
        f"{method} {path} HTTP/1.1",
        f"host: {urlsplit(server.url).netloc}",
        f"authorization: Bearer {server.key}",
        "connection: close",
        f"content-length: {len(content)}",
        "content-type: application/json",
    ]
    return "\r\n".join([*head, "", ""]).encode() + content


async def ask(address: tuple[str, int], data: bytes, all_connected: asyncio.Barrier) -> tuple[int, str]:
    """The status and, of a refusal, its code. Nobody asks before everybody is connected."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        await all_connected.wait()
        writer.write(data)
        answer = await reader.read()
    finally:
        writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1])
    if status < 400:
        return status, ""
    begin, end = body.find(b"{"), body.rfind(b"}") + 1
    return status, str(json.loads(body[begin:end])["code"])


async def crowd(server: Server, sandbox_id: str) -> Counter[tuple[int, str]]:
    parts = urlsplit(server.url)
    address = (str(parts.hostname), int(parts.port or 0))
    asked = [request_bytes(server, *wish) for wish in wishes(sandbox_id)]
    everybody = asyncio.Barrier(CROWD)
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as tasks:
        answers = [tasks.create_task(ask(address, asked[n % len(asked)], everybody)) for n in range(CROWD)]
    return Counter(answer.result() for answer in answers)


def test_a_thousand_requests_at_once(server: Server) -> None:
    with server.create(timeout_s=600) as sandbox:
        sandbox.commands.run("true")
        before = descriptors(server)
        seen = asyncio.run(crowd(server, sandbox.id))
        assert sum(seen.values()) == CROWD
        refused = {code for status, code in seen if status >= 400}
        assert refused <= {
            "sandbox_not_found",
            "template_not_found",
            "invalid_resources",
            "busy",  # the guest has room for so many at once
            "too_many_processes",
            "too_many_requests",
            "no_memory",
            "unavailable",
        }, seen
        assert {"sandbox_not_found", "template_not_found", "invalid_resources"} <= refused
        assert seen[200, ""] >= CROWD // 2
        assert not any(status == 500 for status, _ in seen)
        assert server.request("GET", "/health").status_code == 200
        assert sandbox.commands.run("echo calm").stdout == "calm\n"
        wait_until(lambda: descriptors(server) <= before + 20, 20, "what they held is given back")
