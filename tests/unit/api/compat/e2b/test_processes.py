"""Processes in E2B's words."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest

from atoll.api.compat.e2b import connect, processes
from atoll.api.compat.e2b.processes import SendInput, Start, StreamInput
from atoll.model.errors import InvalidArgument
from atoll.wire import codec
from atoll.wire.public import ProcessExited
from tests.unit.api.compat.e2b.conftest import Inside

pytestmark = pytest.mark.anyio

STREAMED = {"content-type": connect.STREAM}

# As e2b 2.63.0 sent it for commands.run("echo $A", envs={"A": "1"}, cwd="/tmp").
RECORDED = (
    b"""{"process":{"cmd":"/bin/bash","args":["-l","-c","echo $A"],"envs":{"A":"1"},"cwd":"/tmp"},"stdin":false}"""
)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def test_a_start_is_understood() -> None:
    params = processes.start_params(codec.decode(RECORDED, Start), "root", 1.5, "sb1")
    assert params == {
        "argv": ["/bin/bash", "-l", "-c", "echo $A"],
        "env": {"E2B_SANDBOX_ID": "sb1", "A": "1"},
        "cwd": "/tmp",
        "user": "root",
        "stdin": False,
        "timeout_s": 1.5,
    }


def test_a_terminal_has_a_size_and_an_input() -> None:
    body = b'{"process":{"cmd":"/bin/bash"},"pty":{"size":{"cols":100,"rows":30}}}'
    params = processes.start_params(codec.decode(body, Start), None, None, "sb1")
    assert (params["pty"], params["stdin"]) == ({"cols": 100, "rows": 30}, True)


@pytest.mark.parametrize(
    ("code", "signal", "words"),
    [
        (0, None, {"exitCode": 0, "exited": True, "status": "exit status 0"}),
        (3, None, {"exitCode": 3, "exited": True, "status": "exit status 3", "error": "exit status 3"}),
        (137, 9, {"exitCode": -1, "exited": False, "status": "signal: killed", "error": "signal: killed"}),
    ],
)
def test_an_end_is_worded_as_their_agent_does(code: int, signal: int | None, words: dict[str, Any]) -> None:
    exited = ProcessExited(exit_code=code, signal=signal, timed_out=False, oom=False, duration_s=0.1)
    assert processes.end_event(exited) == {"event": {"end": words}}


def test_input_is_base64() -> None:
    assert codec.decode(b'{"process":{"pid":7},"input":{"stdin":"aGk="}}', SendInput).input.data == b"hi"
    message = codec.decode(b'{"data":{"input":{"pty":"aGk="}}}', StreamInput)
    assert message.data is not None
    assert message.data.input.data == b"hi"


def test_a_process_has_a_name() -> None:
    with pytest.raises(InvalidArgument):
        codec.decode(b'{"process":{}}', processes.Connect).process.params()


def _sent(text: bytes) -> dict[str, Any]:
    return {"data": {"input": {"stdin": base64.b64encode(text).decode()}}}


async def test_input_arrives_message_by_message_and_nothing_is_open_between_them(inside: Inside) -> None:
    """So that a silence may be longer than any operation inside; signs of life in it mean nothing."""
    process = inside.guest.start({"cmd": "sleep 60", "stdin": True})
    seen: list[tuple[bytes, int]] = []

    async def chunks() -> AsyncIterator[bytes]:
        start = connect.envelope({"start": {"process": {"pid": process.pid}}})
        yield start + connect.envelope(_sent(b"a")) + connect.envelope(_sent(b"b"))
        seen.append((bytes(process.stdin), inside.guest.streams))
        yield connect.envelope({"keepalive": {}})
        seen.append((bytes(process.stdin), inside.guest.streams))
        cut = connect.envelope(_sent(b"c"))
        yield cut[:7]
        yield cut[7:]
        seen.append((bytes(process.stdin), inside.guest.streams))
        yield connect.end()

    answer = await inside.caller.ask(
        "POST", "/process.Process/StreamInput", headers={**inside.names, **STREAMED}, chunks=chunks()
    )
    assert (answer.status, answer.body) == (200, connect.envelope({}) + connect.end())
    assert seen == [(b"ab", 0), (b"ab", 0), (b"abc", 0)]


async def test_input_for_a_process_that_is_not_there_is_refused_before_it_comes(inside: Inside) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield connect.envelope({"start": {"process": {"pid": 7}}})
        raise AssertionError("nobody waits for what is to go in")

    answer = await inside.caller.ask(
        "POST", "/process.Process/StreamInput", headers={**inside.names, **STREAMED}, chunks=chunks()
    )
    assert b'"not_found"' in answer.body
