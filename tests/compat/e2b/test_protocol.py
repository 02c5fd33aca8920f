"""The bytes that E2B's clients depend on: envelopes, order of events, keep-alives, errors and their statuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from atoll.testing.server import Server

pytestmark = pytest.mark.real


MADE = {"templateID": "base", "timeout": 200, "envVars": {"OWN": "1"}}


@pytest.fixture(scope="module")
def agent(server: Server) -> Iterator[httpx2.Client]:
    """A client that holds the token of one sandbox."""
    made = server.request("POST", "/v2/sandboxes", json=MADE).json()
    headers = {"e2b-sandbox-id": made["sandboxID"], "x-access-token": made["envdAccessToken"]}
    with httpx2.Client(base_url=server.url, headers=headers, timeout=30) as client:
        yield client


def envelope(value: Any) -> bytes:
    payload = json.dumps(value).encode()
    return b"\0" + len(payload).to_bytes(4, "big") + payload


def messages(body: bytes) -> list[tuple[int, Any]]:
    found = []
    while body:
        length = int.from_bytes(body[1:5], "big")
        found.append((body[0], json.loads(body[5 : 5 + length])))
        body = body[5 + length :]
    return found


def stream(agent: httpx2.Client, method: str, value: Any, **headers: str) -> list[tuple[int, Any]]:
    more = {name.replace("_", "-"): text for name, text in headers.items()}
    answer = agent.post(
        f"/{method}", content=envelope(value), headers={"content-type": "application/connect+json", **more}
    )
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/connect+json")
    assert "content-encoding" not in answer.headers
    return messages(answer.content)


def shell(line: str) -> dict[str, Any]:
    return {"process": {"cmd": "/bin/sh", "args": ["-c", line]}, "stdin": False}


def test_a_process_begins_speaks_and_ends(agent: httpx2.Client) -> None:
    first, *data, end, last = stream(agent, "process.Process/Start", shell("printf hi; exit 3"))
    assert first[1]["event"]["start"]["pid"] > 1
    assert [message["event"]["data"] for _, message in data] == [{"stdout": "aGk="}]
    assert end == (
        0,
        {"event": {"end": {"exitCode": 3, "exited": True, "status": "exit status 3", "error": "exit status 3"}}},
    )
    assert last == (2, {})


def test_a_silent_stream_shows_that_it_lives(agent: httpx2.Client) -> None:
    found = stream(agent, "process.Process/Start", shell("sleep 1.5"), keepalive_ping_interval="1")
    assert (0, {"event": {"keepalive": {}}}) in found


def test_a_timeout_ends_the_process_and_the_stream(agent: httpx2.Client) -> None:
    found = stream(agent, "process.Process/Start", shell("sleep 30"), connect_timeout_ms="300")
    assert found[-1][0] == 2
    assert found[-1][1]["error"]["code"] == "deadline_exceeded"
    assert agent.post("/process.Process/List", json={}).json() == {"processes": []}


@pytest.mark.parametrize(
    ("method", "body", "status", "code"),
    [
        ("filesystem.Filesystem/Stat", {"path": "/nothing"}, 404, "not_found"),
        ("filesystem.Filesystem/MakeDir", {"path": "/tmp"}, 409, "already_exists"),
        ("filesystem.Filesystem/ListDir", {"path": "/etc/passwd"}, 400, "invalid_argument"),
        ("process.Process/SendSignal", {"process": {"pid": 99999}, "signal": "SIGNAL_SIGKILL"}, 404, "not_found"),
        ("process.Process/SendSignal", {"process": {"pid": 1}, "signal": "SIGNAL_SIGHUP"}, 501, "unimplemented"),
        ("filesystem.Filesystem/Stat", {"path": 7}, 400, "invalid_argument"),
    ],
)
def test_errors_of_calls_have_a_status_and_a_code(
    agent: httpx2.Client, method: str, body: dict[str, Any], status: int, code: str
) -> None:
    answer = agent.post(f"/{method}", json=body)
    assert (answer.status_code, answer.json()["code"]) == (status, code)


def test_errors_of_streams_are_in_their_last_message(agent: httpx2.Client) -> None:
    ((flags, last),) = stream(agent, "filesystem.Filesystem/WatchDir", {"path": "/nothing"})
    assert (flags, last["error"]["code"]) == (2, "not_found")
    ((_, last),) = stream(agent, "process.Process/Start", shell("true"), authorization="Basic bm9ib2R5OTo=")
    assert last["error"] == {"code": "unauthenticated", "message": "invalid username: 'nobody9'"}


def test_parts_of_a_file_and_one_that_is_compressed(agent: httpx2.Client) -> None:
    assert agent.post("/files?path=/tmp/part", content=b"0123456789").json() == [
        {"path": "/tmp/part", "name": "part", "type": "file"}
    ]
    answer = agent.get("/files?path=/tmp/part", headers={"range": "bytes=2-4", "accept-encoding": "identity"})
    assert (answer.status_code, answer.content, answer.headers["content-range"]) == (206, b"234", "bytes 2-4/10")
    assert agent.get("/files?path=/tmp/part", headers={"range": "bytes=20-"}).status_code == 416
    answer = agent.get("/files?path=/tmp/part", headers={"accept-encoding": "gzip"})
    assert (answer.headers["content-encoding"], answer.content) == ("gzip", b"0123456789")


def test_what_does_not_know_its_size_has_no_parts(agent: httpx2.Client) -> None:
    whole = agent.get("/files?path=/proc/version")
    part = agent.get("/files?path=/proc/version", headers={"range": "bytes=2-4"})
    assert (part.status_code, part.content) == (200, whole.content)
    assert agent.get("/files?path=/etc/passwd", headers={"range": "bytes=5-2"}).status_code == 416


def test_files_are_composed_as_root_for_the_user(agent: httpx2.Client) -> None:
    for name in "12":
        agent.post(f"/files?path=/root/{name}&username=root", content=name.encode())
    body = {"source_paths": ["/root/1", "/root/2"], "destination": "/opt/composed"}
    answer = agent.post("/files/compose", json=body)
    assert (answer.status_code, answer.json()["path"]) == (200, "/opt/composed")
    assert agent.get("/files?path=/opt/composed").content == b"12"
    entry = agent.post("/filesystem.Filesystem/Stat", json={"path": "/opt/composed"}).json()["entry"]
    assert (entry["owner"], agent.get("/files?path=/root/1").status_code) == ("user", 404)
    assert agent.post("/files/compose", json=body).status_code == 404


def test_the_environment_of_the_sandbox_is_told_to_the_holder_of_its_token(agent: httpx2.Client) -> None:
    told = agent.get("/envs").json()
    assert (told["E2B_SANDBOX"], told["OWN"]) == ("true", "1")
    assert told["E2B_SANDBOX_ID"] == agent.headers["e2b-sandbox-id"]
    assert agent.get("/envs", headers={"x-access-token": "wrong"}).status_code == 401


def test_a_context_that_is_not_there_is_said_so(agent: httpx2.Client) -> None:
    answer = agent.post("/execute", json={"code": "1", "context_id": "nope"}, headers={"e2b-sandbox-port": "49999"})
    assert (answer.status_code, answer.text) == (404, "Context nope not found")


def test_what_the_orchestrator_alone_may_is_not_there(agent: httpx2.Client) -> None:
    for path in ("/init", "/freeze", "/upgrade"):
        assert agent.post(path, json={}).status_code == 404
