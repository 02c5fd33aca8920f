"""Keys, tenants, events, usage and status over HTTP: scopes, headers, and what others may not see."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from atoll.testing.asgi import Caller

pytestmark = pytest.mark.anyio


async def key(edge: Any, **body: Any) -> Caller:
    answer = await edge.ask("POST", "/v1/keys", {"name": "x", **body})
    assert answer.status == 201, answer.body
    return Caller(edge.app, answer.json()["key"])


async def test_a_key_is_made_used_and_revoked(edge: Any) -> None:
    made = (await edge.ask("POST", "/v1/keys", {"name": "ci", "expires_in_s": 3600})).json()
    caller = Caller(edge.app, made["key"])
    assert (await caller.ask("GET", "/v1/sandboxes")).status == 200
    listed = (await edge.ask("GET", "/v1/keys")).json()["items"]
    assert [one["name"] for one in listed] == ["first", "ci"]
    assert made["key"] not in str(listed)
    revoked = await edge.ask("DELETE", f"/v1/keys/{made['view']['id']}")
    assert revoked.json()["revoked_at"]
    assert (await caller.ask("GET", "/v1/sandboxes")).json()["code"] == "key_revoked"
    assert (await edge.ask("DELETE", "/v1/keys/ak0")).json()["code"] == "key_not_found"


async def test_a_scope_is_needed_for_everything(edge: Any) -> None:
    reader = await key(edge, scopes=["read"])
    writer = await key(edge, scopes=["write"])
    assert (await reader.ask("GET", "/v1/sandboxes")).status == 200
    refused = await reader.ask("POST", "/v1/sandboxes", {})
    assert (refused.status, refused.json()["code"]) == (403, "scope_missing")
    assert (await writer.ask("POST", "/v1/sandboxes", {})).status == 201
    for method, path in (("GET", "/v1/keys"), ("POST", "/v1/keys"), ("GET", "/v1/webhooks"), ("GET", "/v1/members")):
        assert (await writer.ask(method, path, {"name": "y"})).json()["code"] == "scope_missing"
    assert len(edge.node.orders) == 1


async def test_only_the_operator_sees_tenants(edge: Any) -> None:
    assert (await edge.ask("POST", "/v1/tenants", {"name": "team", "quota": {"sandboxes": 2}})).status == 201
    team = await key(edge, tenant="team", scopes=["admin"])
    for method, path in (
        ("GET", "/v1/tenants"),
        ("POST", "/v1/tenants"),
        ("GET", "/v1/tenants/default"),
        ("GET", "/v1/tenants/none"),
        ("DELETE", "/v1/tenants/team"),
        ("PUT", "/v1/tenants/team/quota"),
        ("GET", "/v1/keys?tenant=default"),
        ("GET", "/v1/keys?tenant=none"),
        ("GET", "/v1/usage?tenant=default"),
        ("GET", "/v1/events?all_tenants=true"),
    ):
        answer = await team.ask(method, path, {"name": "z"} if method == "POST" else {})
        assert (answer.status, answer.json()["code"]) == (403, "operator_only"), path
    assert (await team.ask("GET", "/v1/tenants/team")).json()["quota"]["sandboxes"] == 2
    assert (await team.ask("POST", "/v1/keys", {"name": "second"})).json()["view"]["tenant"] == "team"
    assert (await edge.ask("POST", "/v1/keys", {"name": "x", "tenant": "none"})).json()["code"] == "tenant_not_found"
    assert (await edge.ask("DELETE", "/v1/tenants/team")).status == 204
    assert (await team.ask("GET", "/v1/sandboxes")).status == 401


async def _refused(edge: Any) -> list[tuple[str, ...]]:
    edge.control.accounts.refusals.close()
    await edge.control.accounts.events.flush()
    items = (await edge.ask("GET", "/v1/events?action=request.refused&all_tenants=true")).json()["items"]
    return [(one["tenant"], one["actor"], one["result"], one["source"], one["detail"]["count"]) for one in items]


async def test_a_key_that_opens_nothing_is_in_the_audit_log(edge: Any) -> None:
    """In that of its tenant if it was one; else in the operator's."""
    await edge.ask("POST", "/v1/tenants", {"name": "team"})
    made = (await edge.ask("POST", "/v1/keys", {"name": "x", "tenant": "team"})).json()
    await edge.ask("DELETE", f"/v1/keys/{made['view']['id']}?tenant=team")
    for _ in range(3):
        assert (await Caller(edge.app, made["key"]).ask("POST", "/v1/sandboxes", {})).status == 401
    assert (await Caller(edge.app, "atoll_no").ask("GET", "/v1/sandboxes")).status == 401
    assert sorted(await _refused(edge)) == [
        ("default", "unknown", "unauthenticated", "", "1"),
        ("team", made["view"]["id"], "key_revoked", "", "3"),
    ]


async def test_who_asks_too_often_is_told_of_once_with_a_number(edge: Any) -> None:
    made = (await edge.ask("POST", "/v1/keys", {"name": "x", "quota": {"requests_per_second": 0.001}})).json()
    caller = Caller(edge.app, made["key"])
    answers = [await caller.ask("POST", "/v1/sandboxes", {}) for _ in range(30)]
    assert [answer.status for answer in answers] == [201, *[429] * 29]
    assert await _refused(edge) == [("default", made["view"]["id"], "rate_limited", "", "29")]
    items = (await edge.ask("GET", f"/v1/events?actor={made['view']['id']}")).json()["items"]
    assert [one["action"] for one in items if one["action"].startswith("POST")] == ["POST /v1/sandboxes"]


async def test_a_rate_is_told_and_kept(edge: Any) -> None:
    caller = await key(edge, quota={"requests_per_second": 1})
    first = await caller.ask("GET", "/v1/sandboxes")
    assert (first.headers["ratelimit-limit"], first.headers["ratelimit-remaining"]) == ("2", "1")
    await caller.ask("GET", "/v1/sandboxes")
    refused = await caller.ask("GET", "/v1/sandboxes")
    assert (refused.status, refused.json()["code"]) == (429, "rate_limited")
    assert int(refused.headers["retry-after"]) >= 1
    assert (refused.headers["ratelimit-limit"], refused.headers["ratelimit-remaining"]) == ("2", "0")
    never = await key(edge, quota={"requests_per_second": 0})
    assert (await never.ask("GET", "/v1/sandboxes")).headers["ratelimit-limit"] == "0"


async def test_a_repeated_create_answers_with_the_same_sandbox(edge: Any) -> None:
    header = {"idempotency-key": "k1"}
    first = await edge.ask("POST", "/v1/sandboxes", {"metadata": {"a": "b"}}, headers=header)
    again = await edge.ask("POST", "/v1/sandboxes", {"metadata": {"a": "b"}}, headers=header)
    assert (first.status, again.status) == (201, 200)
    assert first.json()["sandbox"]["id"] == again.json()["sandbox"]["id"]
    other = await edge.ask("POST", "/v1/sandboxes", {}, headers=header)
    assert (other.status, other.json()["code"]) == (409, "idempotency_conflict")


async def test_requests_are_in_the_audit_log_with_their_result(edge: Any) -> None:
    reader = await key(edge, scopes=["read"])
    made = (await edge.ask("POST", "/v1/sandboxes", {})).json()["sandbox"]["id"]
    await edge.ask("DELETE", "/v1/webhooks/none")
    await reader.ask("POST", "/v1/sandboxes", {}, headers={"x-request-id": "mine"})
    await edge.control.accounts.events.flush()
    found = (await edge.ask("GET", "/v1/events?action=POST%20/v1/sandboxes")).json()["items"]
    assert [one["result"] for one in found] == ["ok", "scope_missing"]
    assert found[1]["request_id"] == "mine"
    assert found[0]["target"] == made
    (gone,) = (await edge.ask("GET", "/v1/events?action=DELETE*")).json()["items"]
    assert (gone["target"], gone["result"]) == ("none", "webhook_not_found")
    after = (await edge.ask("GET", f"/v1/events?after={found[0]['number']}&action=POST*")).json()
    assert [one["number"] for one in after["items"]] == [found[1]["number"]]
    for query in ("limit=0", "wait_s=-1", "after=-1", "since=2026-01-01T00:00:00", "target=%00", "nonsense=1"):
        assert (await edge.ask("GET", f"/v1/events?{query}")).status == 400, query


async def test_a_caller_who_waits_for_events_gets_the_next_one(edge: Any) -> None:
    place = (await edge.ask("GET", "/v1/events")).json()["next"]
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(edge.ask, "POST", "/v1/sandboxes", {})
            answer = await edge.ask("GET", f"/v1/events?after={place}&wait_s=20&action=sandbox.*")
    assert answer.json()["items"][0]["action"] == "sandbox.creating"


async def test_usage_and_status_are_shown(inside: Any) -> None:
    await inside.control.accounts.usage.count()
    report = (await inside.ask("GET", "/v1/usage?by=template")).json()
    assert [(row["group"], row["sandboxes"]) for row in report["items"]] == [("code", 1)]
    assert report["items"][0]["wall_s"] > 0
    assert (await inside.ask("GET", "/v1/usage?by=hour")).json()["code"] == "invalid_query"
    status = (await inside.ask("GET", "/v1/status")).json()
    assert (status["tenant"], status["sandboxes"]["running"]) == ("default", 1)
    assert status["warnings"] == []


async def test_lists_are_counted_and_cut_by_time(inside: Any) -> None:
    assert (await inside.ask("GET", "/v1/sandboxes?count=true")).json()["total"] == 1
    path = "/v1/sandboxes?count=true&created_after=2099-01-01T00:00:00Z"
    assert (await inside.ask("GET", path)).json()["total"] == 0
    assert (await inside.ask("GET", "/v1/sandboxes?metadata=a=%00")).status == 400


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"name": ""}, "invalid_name"),
        ({"name": "x", "scopes": ["root"]}, "invalid_scopes"),
        ({"name": "x", "expires_in_s": -1}, "invalid_expiry"),
        ({"name": "x", "expires_at": "2001-01-01T00:00:00Z"}, "invalid_expiry"),
        ({"name": "x", "expires_at": "2099-01-01T00:00:00"}, "invalid_expiry"),
        ({"name": "x", "quota": {"sandboxes": -1}}, "invalid_quota"),
        ({"name": "x", "quota": {"sandboxs": 1}}, "invalid_body"),
        ({"name": "x", "member": "nobody"}, "member_not_found"),
    ],
)
async def test_a_key_that_makes_no_sense_is_refused(edge: Any, body: Any, code: str) -> None:
    assert (await edge.ask("POST", "/v1/keys", body)).json()["code"] == code
