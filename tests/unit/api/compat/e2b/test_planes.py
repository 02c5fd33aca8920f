"""Who may do what through the façade, and how it says no."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import pytest

from atoll.api.compat.e2b import agent, interpreter, records, sandboxes, states, teams, templates, volumes
from atoll.control.authz import ALL_SCOPES, Principal
from atoll.control.events import EventFilter
from atoll.control.keys import KeySpec
from atoll.control.store.engine import Store
from atoll.model import limits
from atoll.model.errors import GuestFailed
from atoll.model.quota import Quota
from atoll.testing.asgi import Answer
from tests.unit.api.compat.e2b.conftest import Front

pytestmark = pytest.mark.anyio

CONTROL_PLANE = [
    operation
    for module in (sandboxes, states, templates, teams, volumes, records)
    for operation in module.OPERATIONS
    if operation.path != "/health"
]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.parametrize("operation", CONTROL_PLANE, ids=lambda known: f"{known.method} {known.path}")
async def test_the_control_plane_wants_a_key(front: Front, operation: Any) -> None:
    path = operation.path.replace("{", "").replace("}", "")
    for headers in ({}, {"x_api_key": "e2b_" + "0" * 64}, {"x_api_key": "foo"}):
        answer = await front.ask(operation.method, path, {}, **headers)
        assert (answer.status, answer.json()["code"]) == (401, 401), answer.body
        assert answer.headers["should-retry"] == "false"


async def test_a_quota_is_not_tried_again_and_a_rate_is(front: Front) -> None:
    """Their Python client tries a 429 three times more, unless it is told that this has no chance."""
    admin = Principal("default", "ak", ALL_SCOPES)
    for spec, headers in (
        (KeySpec("small", quota=Quota(sandboxes=1)), ("false", None)),
        (KeySpec("slow", quota=Quota(requests_per_second=0.01)), ("true", "100")),
    ):
        _, key = await front.control.accounts.keys.create(admin, "default", spec)
        body = {"templateID": "base"}
        assert (await front.ask("POST", "/v2/sandboxes", body, x_api_key=key)).status == 201
        answer = await front.ask("POST", "/v2/sandboxes", body, x_api_key=key)
        assert answer.status == 429, answer.body
        assert (answer.headers["should-retry"], answer.headers.get("retry-after")) == headers


async def test_a_key_that_may_only_read_changes_nothing(front: Front) -> None:
    admin = Principal("default", "ak", ALL_SCOPES)
    _, key = await front.control.accounts.keys.create(admin, "default", KeySpec("reader", frozenset({"read"})))
    made = await front.create()
    for method, path in (
        ("POST", "/v2/sandboxes"),
        ("DELETE", f"/sandboxes/{made['sandboxID']}"),
        ("POST", f"/sandboxes/{made['sandboxID']}/pause"),
        ("PUT", f"/sandboxes/{made['sandboxID']}/network"),
    ):
        answer = await front.ask(method, path, {"templateID": "base"}, x_api_key=key)
        assert answer.status == 403, answer.body


async def test_a_key_that_may_only_read_is_given_nothing_that_opens_more(front: Front) -> None:
    """The token of the inside would let it run commands, that of a volume write there; a header may be a password."""
    admin = Principal("default", "ak", ALL_SCOPES)
    _, reader = await front.control.accounts.keys.create(admin, "default", KeySpec("reader", frozenset({"read"})))
    rules = {"a.test": [{"transform": {"headers": {"Authorization": "Bearer k"}}}]}
    one = f"/sandboxes/{(await front.create(network={'rules': rules}))['sandboxID']}"
    shown = {key: (await front.ask("GET", one, x_api_key=key)).json() for key in (front.key, reader)}
    assert shown[front.key].pop("envdAccessToken")
    assert shown[front.key]["network"].pop("rules") == rules
    blank = {"a.test": [{"transform": {"headers": {"Authorization": ""}}}]}
    assert shown[reader]["network"].pop("rules") == blank
    assert shown[reader] == shown[front.key]
    volume = (await front.ask("POST", "/volumes", {"name": "v"}, x_api_key=front.key)).json()
    assert (await front.ask("GET", "/volumes/v", x_api_key=front.key)).json() == volume
    token = (await front.ask("GET", "/volumes/v", x_api_key=reader)).json()["token"]
    folder = f"/volumecontent/{volume['volumeID']}/dir?path=/a"
    for method, given, status in (
        ("POST", token, 403),
        ("POST", volume["token"], 201),
        ("GET", token, 200),
        ("GET", token[::-1], 401),
    ):
        answer = await front.ask(method, folder, authorization=f"Bearer {given}")
        assert answer.status == status, (method, answer.body)


@pytest.mark.parametrize(
    ("operation", "port"),
    [(known, 49983) for known in agent.OPERATIONS] + [(known, 49999) for known in interpreter.OPERATIONS],
    ids=lambda known: getattr(known, "path", str(known)),
)
async def test_the_inside_of_a_sandbox_wants_its_token(front: Front, operation: Any, port: int) -> None:
    if (operation.method, operation.path) == ("GET", "/health") and port == 49983:
        return  # says only whether it lives, to whoever knows its name
    made = await front.create(network={"allowPublicTraffic": False})
    other = await front.create()
    path = operation.path.replace("{", "").replace("}", "")
    names = {"e2b_sandbox_id": made["sandboxID"], "e2b_sandbox_port": str(port)}
    for token in ("", "wrong", other["envdAccessToken"], other["trafficAccessToken"], front.key):
        shown = {"x_access_token": token} if token else {}
        answer = await front.ask(operation.method, path, b"{}", **names, **shown)
        assert answer.status == 401, (token, answer.body)


@pytest.mark.parametrize(("pieces", "heard"), [(3, 3), (10**6, 17)])
async def test_who_is_refused_in_the_middle_of_an_upload_may_finish_a_small_one(
    front: Front, pieces: int, heard: int
) -> None:
    """Some clients lose an answer that comes while they send. A large upload is not waited for."""
    made = await front.create()
    sent = 0

    async def chunks() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(pieces):
            sent += 1
            yield bytes(64 * limits.KIB)

    headers = {"host": "127.0.0.1:7070", "e2b-sandbox-id": made["sandboxID"], "x-access-token": "wrong"}
    answer = await front.caller.ask("POST", "/files?path=/tmp/a", headers=headers, chunks=chunks())
    assert (answer.status, sent) == (401, heard)


async def test_the_token_of_the_ports_does_not_open_the_agent(front: Front) -> None:
    made = await front.create()
    answer = await front.ask(
        "POST",
        "/process.Process/List",
        {},
        e2b_sandbox_id=made["sandboxID"],
        x_access_token=made["trafficAccessToken"],
        e2b_traffic_access_token=made["trafficAccessToken"],
    )
    assert answer.status == 401


@pytest.mark.parametrize("operation", interpreter.OPERATIONS, ids=lambda known: f"{known.method} {known.path}")
async def test_the_token_of_the_ports_opens_contexts_and_runs_no_code(front: Front, operation: Any) -> None:
    """It is given away with addresses of ports. E2B's clients show it, and no other, for contexts."""
    made = await front.create(network={"allowPublicTraffic": False})
    names = {"e2b_sandbox_id": made["sandboxID"], "e2b_sandbox_port": "49999"}
    path, body = operation.path.replace("{context}", "python"), {"code": "1"}
    answer = await front.ask(operation.method, path, body, **names, e2b_traffic_access_token=made["trafficAccessToken"])
    assert (answer.status == 401) is (path == "/execute"), answer.body


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/execute"), ("GET", "/contexts"), ("DELETE", "/contexts/python")]
)
async def test_of_a_public_sandbox_a_stranger_may_not_touch_the_code(front: Front, method: str, path: str) -> None:
    made = await front.create()
    answer = await front.ask(method, path, {"code": "1"}, e2b_sandbox_id=made["sandboxID"], e2b_sandbox_port="49999")
    assert answer.status == 401


async def _told(front: Front) -> list[tuple[str, str, str, str]]:
    """What the audit log says of requests: actor, action, target, result."""
    await front.control.accounts.events.flush()
    page = await front.control.accounts.events.page(EventFilter("default"), None, 1000)
    return [
        (event.actor, event.action, event.target, event.result)
        for event in page.items
        if event.actor in ("sandbox_token", "volume_token", "signed_address", "public")
    ]


async def test_what_is_asked_without_a_key_is_in_the_audit_log(front: Front) -> None:
    """By what it was asked, and with the sandbox; what only reads is left out, as elsewhere."""
    made = await front.create()
    one = made["sandboxID"]
    agent_of = {"e2b_sandbox_id": one, "x_access_token": made["envdAccessToken"]}
    code_of = {"e2b_sandbox_id": one, "e2b_sandbox_port": "49999"}
    stat = await front.ask("POST", "/filesystem.Filesystem/Stat", {"path": "/"}, **agent_of)
    assert stat.status == 200, stat.body
    listed = await front.ask("POST", "/process.Process/List", {}, **agent_of)
    assert (listed.status, await _told(front)) == (200, [])
    await front.ask("POST", "/filesystem.Filesystem/MakeDir", {"path": "/tmp/a"}, **agent_of)
    await front.ask("POST", "/files?path=/tmp/a/b", b"x", **agent_of)
    signature = _signature(made["envdAccessToken"], "/tmp/c", "write")
    await front.ask("POST", f"/files?path=/tmp/c&signature={signature}", b"x", e2b_sandbox_id=one)
    await front.ask("POST", "/contexts", {}, **code_of)
    await front.ask("POST", "/execute", {"code": "1"}, **code_of, x_access_token=made["envdAccessToken"])
    volume = (await front.ask("POST", "/volumes", {"name": "v"}, x_api_key=front.key)).json()
    bearer = {"authorization": f"Bearer {volume['token']}"}
    await front.ask("POST", f"/volumecontent/{volume['volumeID']}/dir?path=/a", **bearer)
    assert [told[:3] for told in await _told(front)] == [
        ("sandbox_token", "POST e2b agent /filesystem.Filesystem/MakeDir", one),
        ("sandbox_token", "POST e2b agent /files", one),
        ("signed_address", "POST e2b agent /files", one),
        ("public", "POST e2b interpreter /contexts", one),
        ("sandbox_token", "POST e2b interpreter /execute", one),
        ("volume_token", "POST e2b control /volumecontent/{volume}/dir", volume["volumeID"]),
    ]


def _signature(token: str, path: str, operation: str) -> str:
    digest = hashlib.sha256(f"{path}:{operation}::{token}".encode()).digest()
    return quote("v1_" + base64.b64encode(digest).decode().rstrip("="), safe="")


async def test_what_is_asked_without_a_key_is_at_the_rate_of_its_owner(front: Front) -> None:
    """Strangers have a rate of their own: they cannot keep the owner out."""
    made = await front.create()
    operator = Principal("default", "ak", ALL_SCOPES)
    agent_of = {"e2b_sandbox_id": made["sandboxID"], "x_access_token": made["envdAccessToken"]}
    code_of = {"e2b_sandbox_id": made["sandboxID"], "e2b_sandbox_port": "49999"}

    async def stranger() -> int:
        return (await front.ask("GET", "/health", **code_of)).status

    await front.control.accounts.tenants.set_quota(operator, "default", Quota(requests_per_second=0.01))
    assert (await stranger(), await stranger()) == (200, 429)
    answer = await front.ask("POST", "/process.Process/List", {}, **agent_of)
    assert (answer.status, answer.headers["ratelimit-remaining"]) == (200, "0")
    answer = await front.ask("POST", "/process.Process/List", {}, **agent_of)
    assert (answer.status, answer.json()["code"]) == (429, "resource_exhausted")
    assert (await front.ask("GET", "/files?path=/a", **agent_of)).status == 429
    await front.control.accounts.tenants.set_quota(operator, "default", Quota())
    assert (await front.ask("POST", "/process.Process/List", {}, **agent_of)).status == 200


async def test_a_call_by_a_token_asks_the_database_nothing(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    made = await front.create()
    agent_of = {"e2b_sandbox_id": made["sandboxID"], "x_access_token": made["envdAccessToken"]}
    assert (await front.ask("POST", "/process.Process/List", {}, **agent_of)).status == 200
    reads: list[Any] = []
    read = Store.read

    async def counted(store: Store, query: Any, *arguments: Any, **options: Any) -> Any:
        reads.append(query)
        return await read(store, query, *arguments, **options)

    monkeypatch.setattr(Store, "read", counted)
    for _ in range(3):
        assert (await front.ask("POST", "/process.Process/List", {}, **agent_of)).status == 200
    assert reads == []


async def test_a_sandbox_that_is_gone_is_told_as_their_proxy_does(front: Front) -> None:
    made = await front.create()
    names = {"e2b_sandbox_id": made["sandboxID"], "x_access_token": made["envdAccessToken"]}
    assert (await front.ask("GET", "/health", **names)).status == 204
    assert (await front.ask("DELETE", f"/sandboxes/{made['sandboxID']}", x_api_key=front.key)).status == 204
    for method, path in (("GET", "/health"), ("POST", "/process.Process/List"), ("GET", "/files?path=a")):
        answer = await front.ask(method, path, {}, **names)
        assert (answer.status, answer.json()["message"]) == (502, "The sandbox was not found")
    assert (await front.ask("DELETE", f"/sandboxes/{made['sandboxID']}", x_api_key=front.key)).status == 404


@pytest.mark.parametrize(("paused", "left"), [({"autoPause": True}, "paused"), ({}, None)])
async def test_a_timeout_of_nothing_does_what_the_deadline_would(
    front: Front, paused: dict[str, Any], left: str | None
) -> None:
    one = f"/sandboxes/{(await front.create(**paused))['sandboxID']}"
    assert (await front.ask("POST", f"{one}/timeout", {"timeout": 0}, x_api_key=front.key)).status == 204
    shown = await front.ask("GET", one, x_api_key=front.key)
    assert (shown.status, shown.json().get("state")) == ((200, left) if left else (404, None))
    for timeout in (0, 60):
        answer = await front.ask("POST", f"{one}/timeout", {"timeout": timeout}, x_api_key=front.key)
        assert answer.status == 404, answer.body


async def test_a_strict_pause_asks_the_inside_first(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not answer is left as it is; told at once, because it was waited for already."""
    made = await front.create()
    one, strict = f"/sandboxes/{made['sandboxID']}", {"requireHealthyGuest": True}
    monkeypatch.setattr(limits, "HEALTH_S_MAX", 0.05)
    guest = front.node.guests[made["sandboxID"]]
    guest.scripts["ping"] = _unreachable
    answer = await front.ask("POST", f"{one}/pause", strict, x_api_key=front.key)
    assert (answer.status, answer.headers["should-retry"]) == (503, "false"), answer.body
    assert (await front.ask("GET", one, x_api_key=front.key)).json()["state"] == "running"
    del guest.scripts["ping"]
    assert (await front.ask("POST", f"{one}/pause", strict, x_api_key=front.key)).status == 204
    shown = (await front.ask("GET", one, x_api_key=front.key)).json()
    assert (shown["state"], shown["pauseMode"]) == ("paused", "full")


def _unreachable(_: Any) -> Any:
    raise GuestFailed("the sandbox does not answer", code="guest_unreachable")


@pytest.mark.parametrize("way", ["/v2{}/connect", "{}/connect", "{}/resume"])
async def test_a_memory_whose_inside_does_not_answer_is_named_so(front: Front, way: str) -> None:
    """By this code their clients know that it boots from its disk, and from nothing else."""
    one = f"/sandboxes/{(await front.create())['sandboxID']}"
    assert (await front.ask("POST", f"{one}/pause", {}, x_api_key=front.key)).status == 204
    front.node.resume_errors.append(GuestFailed("the sandbox did not answer", code="start_failed"))
    answer = await front.ask("POST", way.format(one), {"timeout": 60}, x_api_key=front.key)
    assert (answer.status, answer.json()["error_code"]) == (409, "sandbox_snapshot_guest_agent_unresponsive")
    body = {"timeout": 60, "memory": False}
    assert (await front.ask("POST", way.format(one), body, x_api_key=front.key)).status == 201


async def test_a_sandbox_from_a_snapshot_says_so(front: Front) -> None:
    """By id or by name; a fork is of what its sandbox is of, and a deleted snapshot is not named any more."""
    source = f"/sandboxes/{(await front.create())['sandboxID']}"

    async def ask(method: str, path: str, body: Any = None) -> Any:
        answer = await front.ask(method, path, body, x_api_key=front.key)
        assert answer.status < 300, answer.body
        return answer.json() if answer.body else None

    taken = (await ask("POST", f"{source}/snapshots", {"name": "mine"}))["snapshotID"]
    for template in (taken, "mine"):
        made = await front.create(templateID=template)
        one = f"/sandboxes/{made['sandboxID']}"
        assert (made["templateID"], (await ask("GET", one))["templateID"]) == (taken, taken)
        assert front.node.orders[-1].env["E2B_TEMPLATE_ID"] == taken
        (listed,) = await ask("GET", f"/v2/sandboxes?template={template}")
        assert (listed["sandboxID"], listed["templateID"]) == (made["sandboxID"], taken)
        for page in ("", "&order=asc"):
            assert [of["templateID"] for of in await ask("GET", f"/v2/sandboxes?template=base{page}")] == ["base"]
        assert (await ask("POST", f"/v2{one}/connect", {}))["templateID"] == taken
        await ask("DELETE", one)
        assert await ask("GET", f"/templates/aliases/{template}") == {"templateID": taken, "public": False}
    (copy,) = await ask("POST", f"{source}/fork", {})
    assert copy["sandbox"]["templateID"] == "base"
    last = await front.create(templateID="mine")
    assert len(await ask("GET", "/v2/sandboxes?template=base")) == 2
    await ask("DELETE", f"/templates/{taken}")
    assert len(await ask("GET", "/v2/sandboxes?template=base")) == 3
    assert (await ask("GET", f"/sandboxes/{last['sandboxID']}"))["templateID"] == "base"
    assert (await front.ask("GET", "/templates/aliases/mine", x_api_key=front.key)).status == 404


async def test_nothing_that_was_asked_for_is_left_out_unsaid(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask(method: str, path: str, body: Any = None) -> Answer:
        return await front.ask(method, path, body, x_api_key=front.key)

    body = {"templateID": "base", "autoPause": True, "autoPauseMemory": False, "autoResume": {"enabled": True}}
    assert (await ask("POST", "/v2/sandboxes", body)).status == 400
    one = f"/sandboxes/{(await front.create())['sandboxID']}"
    await ask("POST", f"{one}/pause", {})
    assert (await ask("POST", f"{one}/resume", {"autoPause": True})).status == 400
    assert (await ask("POST", f"{one}/resume", {"autoPause": False})).status == 201
    await front.create()
    await ask("POST", f"/sandboxes/{(await front.create())['sandboxID']}/pause", {})
    page = await ask("GET", "/v2/sandboxes?limit=1")
    assert (len(page.json()), page.headers["x-total-running"]) == (1, "2")
    monkeypatch.setattr(limits, "PAGE_ITEMS_MAX", 1)
    assert len((await ask("GET", "/sandboxes")).json()) == 2
    answer = await ask("GET", "/sandboxes/metrics?sandbox_ids=" + ",".join(["sbnothing"] * 101))
    assert (answer.status, "at most 100" in answer.json()["message"]) == (400, True)


async def test_unknown_paths_and_bodies_are_refused_in_their_words(front: Front) -> None:
    answer = await front.ask("GET", "/sandboxes/a/b/c", x_api_key=front.key)
    assert (answer.status, answer.json()["code"]) == (404, 404)
    answer = await front.ask("POST", "/v2/sandboxes", {"templateID": 7}, x_api_key=front.key)
    assert answer.status == 400
    answer = await front.ask("POST", "/v2/sandboxes", {"templateID": "base", "mcp": {"x": {}}}, x_api_key=front.key)
    assert (answer.status, "mcp" in answer.json()["message"]) == (400, True)


async def test_a_team_is_the_tenant_of_the_key(front: Front) -> None:
    answer = await front.ask("GET", "/teams", authorization=f"Bearer {front.key}")
    assert answer.json() == [{"teamID": "default", "name": "default", "apiKey": front.key, "isDefault": True}]


async def test_templates_have_pages_and_one_tag(front: Front) -> None:
    async def ask(path: str) -> Any:
        answer = await front.ask("GET", path, x_api_key=front.key)
        assert answer.status == 200, answer.body
        return answer

    first = await ask("/v2/templates?limit=1")
    rest = await ask(f"/v2/templates?limit=10&nextToken={first.headers['x-next-token']}")
    names = [found["templateID"] for found in first.json() + rest.json()]
    assert names == sorted({found["templateID"] for found in (await ask("/templates")).json()})
    assert "x-next-token" not in rest.headers
    (tag,) = (await ask("/templates/base/tags")).json()
    assert (await ask("/templates/base/tags/count")).json() == {"total": 1}
    assert (await ask("/templates/base/tags/exists?tag=Default")).json() == {"exists": True, "normalizedTag": "default"}
    assert (await ask("/templates/base/tags/exists?tag=v2")).json()["exists"] is False
    (group,) = (await ask("/templates/base/tags/groups")).json()["tags"]
    assert (group["tag"], group["assignments"][0]["buildId"]) == ("default", tag["buildID"])
    assert (await ask("/templates/base/tags/default/assignments")).json()["data"] == group["assignments"]
    assert (await ask("/templates/base/tags/v2/assignments")).json()["data"] == []
    assert (await front.ask("GET", "/templates/nothing/tags/count", x_api_key=front.key)).status == 404


async def test_what_happened_is_told_after_the_end_in_pages(front: Front) -> None:
    made = await front.create()
    await front.create()
    one = f"/sandboxes/{made['sandboxID']}"
    assert (await front.ask("DELETE", one, x_api_key=front.key)).status == 204

    async def ask(path: str) -> Any:
        answer = await front.ask("GET", path, x_api_key=front.key)
        assert answer.status == 200, answer.body
        return answer.json()

    lines = (await ask(f"{one}/logs"))["logEntries"]
    assert [lines[0]["message"], lines[-1]["message"]] == ["sandbox.creating", "sandbox.killed"]
    assert (await ask(f"{one}/logs?limit=1"))["logEntries"] == lines[:1]
    assert (await ask(f"/v2{one}/logs?limit=1&direction=backward"))["logs"] == lines[-1:]
    assert (await ask(f"/v2{one}/logs?level=error"))["logs"] == []
    assert (await ask(f"/v2{one}/logs?search=killed"))["logs"] == lines[-1:]
    assert [event["type"] for event in await ask(f"/events{one}")] == [
        "sandbox.lifecycle.killed",
        "sandbox.lifecycle.created",
    ]
    everything = await ask("/events/sandboxes")
    assert len(everything) == 3
    builds = {event["sandboxBuildId"] for event in everything}
    assert builds == {(await ask("/templates/base"))["buildID"]}
    assert {(event["sandboxTemplateId"], event["sandboxTeamId"]) for event in everything} == {("base", "default")}
    wanted = "types=sandbox.lifecycle.created&types=sandbox.lifecycle.paused"
    first, second = await ask(f"/events/sandboxes?{wanted}&orderAsc=true")
    assert (first["sandboxId"], second["type"]) == (made["sandboxID"], "sandbox.lifecycle.created")
    assert await ask(f"/events/sandboxes?{wanted}&orderAsc=true&offset=1&limit=1") == [second]
    for wrong in ("types=no", "offset=x", "limit=0", "offset=1000"):
        assert (await front.ask("GET", f"/events/sandboxes?{wrong}", x_api_key=front.key)).status == 400
    assert (await front.ask("GET", "/sandboxes/sbnothing/logs", x_api_key=front.key)).status == 404


async def test_the_hosts_of_their_api_says_that_it_lives_and_leaves_us_our_paths(front: Front) -> None:
    def at(path: str) -> Any:
        return front.caller.ask("GET", path, headers={"host": "api.localhost"})

    assert (await at("/health")).json() == {"status": "ok"}
    assert (await at("/v1/sandboxes")).json()["type"].startswith("urn:atoll:")
    assert (await at("/nothing")).json()["code"] == 404


async def test_our_own_api_is_where_it_was(front: Front) -> None:
    assert (await front.ask("GET", "/health")).status == 200
    assert (await front.ask("GET", "/v1/sandboxes")).status == 401
