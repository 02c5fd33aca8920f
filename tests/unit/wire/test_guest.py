from __future__ import annotations

import json

import pytest

from atoll.wire import framing
from atoll.wire import guest as wire


def reply(value: object) -> wire.Message:
    return wire.parse_reply(framing.Frame(framing.CONTROL, json.dumps(value).encode()))


def test_each_kind_of_reply() -> None:
    assert reply({"ok": {"a": 1}}) == wire.Ok({"a": 1})
    assert reply({"event": {"type": "x"}}) == wire.Event({"type": "x"})
    assert reply({"end": {}}) == wire.End({})
    assert reply({"error": {"code": "busy", "message": "m"}}) == wire.Failure("busy", "m")
    assert wire.parse_reply(framing.Frame(framing.STDOUT, b"x")) == wire.Data(framing.STDOUT, b"x")


@pytest.mark.parametrize(
    "value", [[], 1, None, {}, {"ok": 1}, {"ok": {}, "end": {}}, {"what": {}}, {"error": {"code": 1}}]
)
def test_anything_else_is_refused(value: object) -> None:
    with pytest.raises(wire.MessageError):
        reply(value)


@pytest.mark.parametrize("payload", [b"", b"\xff", b"{", b"[" * 100_000, b"9" * 5000, b'{"a":' * 50_000])
def test_broken_json_is_refused(payload: bytes) -> None:
    with pytest.raises(wire.MessageError):
        wire.parse_reply(framing.Frame(framing.CONTROL, payload))


def test_a_guest_sends_no_input_frames() -> None:
    with pytest.raises(wire.MessageError):
        wire.parse_reply(framing.Frame(framing.INPUT, b""))


def test_names_that_are_not_utf8_arrive_as_the_same_bytes() -> None:
    name = b"a\xff\xfe\nb".decode("utf-8", "surrogateescape")
    (frame,) = framing.Decoder().feed(wire.request("file.stat", "t", {"path": name}))
    assert wire.parse_control(frame.payload)["path"].encode("utf-8", "surrogateescape") == b"a\xff\xfe\nb"


def test_parameters_cannot_replace_operation_or_token() -> None:
    (frame,) = framing.Decoder().feed(wire.request("ping", "t", {"op": "x", "token": "y"}))
    assert wire.parse_control(frame.payload) == {"op": "ping", "token": "t"}


def test_the_command_line_holds_the_hash_and_not_the_token() -> None:
    argv = wire.boot_argv(["python3"], "/app", port=1, token_sha256=wire.token_hash("secret"), peer="10.0.0.1")
    assert argv[0] == "python3"
    assert "secret" not in " ".join(argv)
    assert argv[-2:] == ["--peer", "10.0.0.1"]


def test_the_interpreter_of_a_runtime_folder_starts_by_its_own_loader() -> None:
    argv = wire.runtime_python("/.atoll/runtime")
    assert argv[0] == "/.atoll/runtime/lib/ld-linux-x86-64.so.2"
    assert argv[-1] == "/.atoll/runtime/bin/python3"
