"""Whatever an interpreter says is either understood or broken; nothing else can come of it."""

from __future__ import annotations

import contextlib
import json
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.guest.contexts_execution import Request
from atoll.guest.contexts_protocol import Bash, Broken, Frames, Heard, checked
from atoll.wire import framing


@given(st.lists(st.binary(max_size=64), max_size=8), st.booleans())
def test_garbage_is_broken_or_understood(pieces: list[bytes], bash: bool) -> None:
    protocol: Bash | Frames = Bash() if bash else Frames()
    with contextlib.suppress(Broken):
        for piece in pieces:
            for heard in protocol.feed(piece):
                assert isinstance(heard, Heard)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=5))
def test_json_of_the_wrong_shape_is_broken(value: object) -> None:
    frame = framing.encode(framing.CONTROL, json.dumps(value).encode())
    with pytest.raises(Broken):
        Frames().feed(frame)


def test_words_are_checked() -> None:
    assert checked("done", {"count": "x", "exit_code": 256 + 3}) == {"count": None, "exit_code": 3}
    assert checked("done", {"count": 2, "exit_code": None}) == {"count": 2, "exit_code": 1}
    assert checked("error", {"name": 1, "more": 2}) == {"name": "1", "value": "", "traceback": ""}


def test_a_prompt_of_the_environment_is_not_set() -> None:
    prompts = {"PS1": "boo", "PROMPT_COMMAND": "boo"}
    assert b"boo" not in Bash().run("i", Request("echo 1", env=prompts), {"PS2": "boo"})


@pytest.mark.parametrize("code", ["echo \"a b\" 'c'", "echo 'it'\\''s'\necho $((1+1))", "printf '%s' \"$X\""])
def test_a_shell_runs_what_was_sent(code: str) -> None:
    """A real shell, fed as a context is."""
    protocol = Bash()
    said = protocol.hello() + protocol.run("i", Request(code, env={"X": "it's"}), {}) + b"exit 0\n"
    direct = subprocess.run(["bash", "-c", code], env={"X": "it's"}, capture_output=True, check=False)
    fed = subprocess.run(
        ["bash", "--norc", "--noprofile", "--noediting", "-i"],
        input=said.replace(b">&3", b">&2"),
        capture_output=True,
        check=False,
    )
    assert fed.stdout == direct.stdout
    assert b"ready\0" in fed.stderr
    assert b"done 0\0" in fed.stderr
