"""Processes over HTTP: both encodings, callers who leave, and guests that lie."""

from __future__ import annotations

import base64
import json
from typing import Any

import anyio
import pytest

from atoll.model import limits
from atoll.testing.asgi import Caller
from atoll.wire import framing, guest
from atoll.wire.stream import FRAMES

pytestmark = pytest.mark.anyio

STARTED = guest.Event({"type": "started", "id": "p1", "pid": 7})
END = guest.End({"code": 0, "signal": None, "timed_out": False, "oom": False, "duration_s": 0.1})


async def test_events_as_lines(inside: Any) -> None:
    answer = await inside.ask("POST", "~/processes", {"cmd": "echo hi; echo no >&2; exit 3"})
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert answer.complete
    started, out, err, exited = answer.lines()
    assert started["type"] == "started"
    assert (out["stream"], out["offset"], base64.b64decode(out["data"])) == ("stdout", 0, b"hi\n")
    assert (err["stream"], base64.b64decode(err["data"])) == ("stderr", b"no\n")
    assert (exited["type"], exited["exit_code"]) == ("exited", 3)


async def test_events_as_frames(inside: Any) -> None:
    answer = await inside.ask("POST", "~/processes", {"cmd": "yes 300000; echo no >&2"}, headers={"accept": FRAMES})
    assert answer.headers["content-type"] == FRAMES
    decoder = framing.Decoder()
    frames = decoder.feed(answer.body)
    assert decoder.pending_bytes == 0
    assert json.loads(frames[0].payload)["type"] == "started"
    assert b"".join(f.payload for f in frames if f.kind == framing.STDOUT) == b"y" * 300_000
    assert b"".join(f.payload for f in frames if f.kind == framing.STDERR) == b"no\n"
    assert json.loads(frames[-1].payload)["type"] == "exited"


async def test_without_following_the_process_is_the_answer(inside: Any) -> None:
    answer = await inside.ask("POST", "~/processes?follow=false", {"argv": ["echo", "hi"], "tag": "t"})
    assert answer.status == 201
    started = answer.json()
    (listed,) = (await inside.ask("GET", "~/processes")).json()["items"]
    assert (listed["id"], listed["tag"], listed["argv"]) == (started["id"], "t", ["echo", "hi"])
    events = (await inside.ask("GET", f"~/processes/{started['id']}/output?stdout_offset=1")).lines()
    assert base64.b64decode(events[1]["data"]) == b"i\n"
    assert events[1]["offset"] == 1


async def test_what_fails_before_the_first_event_has_its_own_status(inside: Any) -> None:
    answer = await inside.ask("POST", "~/processes", {"argv": ["nonesuch"]})
    assert (answer.status, answer.json()["code"]) == (400, "no_such_program")
    answer = await inside.ask("GET", "~/processes/p999/output")
    assert (answer.status, answer.json()["code"]) == (404, "no_such_process")
    for body in ({}, {"argv": ["a"], "cmd": "b"}):
        answer = await inside.ask("POST", "~/processes", body)
        assert (answer.status, answer.json()["code"]) == (400, "invalid_body")


async def test_input_goes_in_and_a_signal_ends_it(inside: Any) -> None:
    started = (await inside.ask("POST", "~/processes?follow=false", {"cmd": "cat", "stdin": True})).json()
    written = await inside.ask("POST", f"~/processes/{started['id']}/stdin?close=true", b"hello")
    assert written.json() == {"written": 5, "offset": 5}
    events = (await inside.ask("GET", f"~/processes/{started['pid']}/output")).lines()
    assert base64.b64decode(events[1]["data"]) == b"hello"
    sleeper = (await inside.ask("POST", "~/processes?follow=false", {"cmd": "sleep 100"})).json()
    answer = await inside.ask("POST", f"~/processes/{sleeper['id']}/signal", {"signal": "KILL"})
    assert (answer.status, answer.body) == (204, b"")
    assert (await inside.ask("GET", f"~/processes/{sleeper['id']}/output")).lines()[-1]["signal"] == 9


@pytest.mark.parametrize("kill", [True, False])
async def test_a_caller_who_leaves_ends_the_stream_at_once(inside: Any, kill: bool) -> None:
    gone, begun = anyio.Event(), anyio.Event()
    body = {"cmd": "echo hi; sleep 100", "kill_on_disconnect": kill}
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: inside.ask("POST", "~/processes", body, gone=gone, begun=begun))
            await begun.wait()
            assert inside.guest.streams == 1
            gone.set()
    assert inside.guest.streams == 0
    (process,) = inside.guest.processes.values()
    assert (process.exit is not None) == kill


async def test_a_stream_that_lasts_is_in_the_audit_log_before_it_ends(
    inside: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever follows the log sees it meanwhile, and so does whoever looks after a kill of the server."""
    monkeypatch.setattr(limits, "LASTING_S", 0.05)
    wanted = f"/v1/events?target={inside.sandbox}&result="
    gone, begun = anyio.Event(), anyio.Event()
    with anyio.fail_after(10):
        await inside.ask("POST", "~/processes", {"cmd": "echo short"})
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: inside.ask("POST", "~/processes", {"cmd": "sleep 100"}, gone=gone, begun=begun))
            await begun.wait()
            (seen,) = (await inside.ask("GET", f"{wanted}begun&after=0&wait_s=9")).json()["items"]
            gone.set()
    await inside.control.accounts.events.flush()
    short, ended = (await inside.ask("GET", f"{wanted}ok&action=POST*")).json()["items"][-2:]
    assert (seen["action"], seen["request_id"]) == (ended["action"], ended["request_id"])
    assert "lasted_s" not in short["detail"]
    assert float(ended["detail"]["lasted_s"]) >= limits.LASTING_S


async def test_a_terminal_that_is_opened_with_a_ticket_is_in_the_audit_log(inside: Any) -> None:
    started = (await inside.ask("POST", "~/processes?follow=false", {"cmd": "cat"})).json()
    path = f"/v1/sandboxes/{inside.sandbox}/terminals/{started['id']}"
    made = (await inside.ask("POST", f"{path}/ticket")).json()
    scope = {
        "type": "websocket",
        "path": path,
        "query_string": f"ticket={made['ticket']}".encode(),
        "headers": [],
        "client": ("192.0.2.1", 9),
    }

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(_: Any) -> None:
        pass

    await inside.app(scope, receive, send)
    await inside.control.accounts.events.flush()
    (told,) = (await inside.ask("GET", "/v1/events?action=GET*")).json()["items"]
    assert (told["action"], told["target"]) == ("GET /v1/sandboxes/{sandbox}/terminals/{process}", inside.sandbox)
    assert (told["source"], told["result"]) == ("192.0.2.1", "no_terminal")
    assert told["actor"].startswith("ak")


async def test_a_stream_ends_with_the_key_that_opened_it(inside: Any) -> None:
    """Its last event says why; those of other keys go on."""
    made = (await inside.ask("POST", "/v1/keys", {"name": "x"})).json()
    ended: list[Any] = []
    begun, others, gone = anyio.Event(), anyio.Event(), anyio.Event()

    async def follow() -> None:
        body = {"cmd": "echo hi; sleep 100"}
        ended.append(await Caller(inside.app, made["key"]).ask("POST", path, body, begun=begun))

    path = f"/v1/sandboxes/{inside.sandbox}/processes"
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow)
            tasks.start_soon(lambda: inside.ask("POST", path, {"cmd": "echo hi; sleep 100"}, begun=others, gone=gone))
            await begun.wait()
            await others.wait()
            await inside.ask("DELETE", f"/v1/keys/{made['view']['id']}")
            while not ended:
                await anyio.sleep(0.005)
            assert inside.guest.streams == 1
            gone.set()
    assert ended[0].lines()[-1]["problem"]["code"] == "key_revoked"
    assert inside.control.accounts.keys.ends._open == {}


async def test_a_sandbox_that_has_ended_says_why(inside: Any) -> None:
    await inside.ask("DELETE", "~")
    answer = await inside.ask("POST", "~/processes", {"cmd": "true"})
    assert (answer.status, answer.json()["code"]) == (409, "not_running")
    assert "killed_by_user" in answer.json()["detail"]


async def test_a_sandbox_that_dies_in_the_middle_is_the_last_event(inside: Any) -> None:
    def dying(_: dict[str, Any]) -> Any:
        yield STARTED
        yield guest.Failure("busy", "too much")

    inside.guest.scripts["process.start"] = dying
    events = (await inside.ask("POST", "~/processes", {"cmd": "x"})).lines()
    assert [event["type"] for event in events] == ["started", "failed"]
    assert events[1]["problem"]["code"] == "busy"


LIES: list[list[guest.Message]] = [
    [],
    [END],
    [guest.Data(framing.STDOUT, b"early")],
    [guest.Event({"type": "started"})],
    [guest.Event({"type": "started", "id": "x" * 1000, "pid": 1})],
    [guest.Event({"type": "started", "id": "x", "pid": 2**40})],
    [guest.Event({"type": "started", "id": {"a": 1}, "pid": 1})],
    [guest.Ok({})],
]


@pytest.mark.parametrize("lie", LIES)
async def test_a_guest_that_lies_at_first_is_a_502(inside: Any, lie: list[guest.Message]) -> None:
    inside.guest.scripts["process.start"] = lambda _: lie
    answer = await inside.ask("POST", "~/processes", {"cmd": "x"})
    assert (answer.status, answer.json()["code"]) == (502, "guest_failed")


LATER_LIES: list[guest.Message] = [
    guest.Data(framing.OUTPUT, b"a download?"),
    guest.End({"code": "0"}),
    guest.End({"code": 0, "timed_out": False, "oom": False, "duration_s": float("nan")}),
    guest.End({"code": 10**9, "timed_out": False, "oom": False, "duration_s": 1.0}),
    guest.Event({"type": "dropped", "stream": "stdin", "bytes": 1, "offset": 1}),
    guest.Event({"type": "dropped", "stream": "stdout", "bytes": -1, "offset": 1}),
    guest.Ok({}),
]


@pytest.mark.parametrize("lie", LATER_LIES)
async def test_a_guest_that_lies_later_ends_the_stream(inside: Any, lie: guest.Message) -> None:
    inside.guest.scripts["process.start"] = lambda _: [STARTED, lie]
    events = (await inside.ask("POST", "~/processes", {"cmd": "x"})).lines()
    assert events[-1]["type"] == "failed"
    assert events[-1]["problem"]["code"] == "guest_failed"


async def test_gaps_shift_the_offset(inside: Any) -> None:
    gap = guest.Event({"type": "dropped", "stream": "stdout", "bytes": 90, "offset": 100})
    data = [guest.Data(framing.STDOUT, b"0123456789"), gap, guest.Data(framing.STDOUT, b"x")]
    inside.guest.scripts["process.start"] = lambda _: [STARTED, *data, END]
    events = (await inside.ask("POST", "~/processes", {"cmd": "x"})).lines()
    assert (events[2]["offset"], events[2]["length"]) == (10, 90)
    assert events[3]["offset"] == 100


async def test_a_list_without_end_or_of_nonsense_is_refused(inside: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("atoll.model.limits.LIST_ENTRIES_MAX", 10)

    def endless(_: dict[str, Any]) -> Any:
        while True:
            yield guest.Event({"entries": [inside.guest.start({"cmd": "true"}).describe()]})

    for script in (endless, lambda _: [guest.Event({"entries": 5})], lambda _: [guest.Event({"entries": [{}]})]):
        inside.guest.scripts["process.list"] = script
        answer = await inside.ask("GET", "~/processes")
        assert (answer.status, answer.json()["code"]) == (502, "guest_failed")
