"""Processes in E2B's words."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.api.compat.e2b import processes
from atoll.api.compat.e2b.processes import SendInput, Start, StreamInput
from atoll.model.errors import InvalidArgument
from atoll.wire import codec
from atoll.wire.public import ProcessExited

# As e2b 2.63.0 sent it for commands.run("echo $A", envs={"A": "1"}, cwd="/tmp").
RECORDED = (
    b"""{"process":{"cmd":"/bin/bash","args":["-l","-c","echo $A"],"envs":{"A":"1"},"cwd":"/tmp"},"stdin":false}"""
)


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
