"""What a worker finds out before it starts a program."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from atoll.guest.channel import Channel
from atoll.guest.failure import TimeOver
from atoll.guest.worker import _program, _refuse_more
from atoll.model import limits
from atoll.wire import framing
from atoll.wire import guest as wire


@pytest.fixture
def folders(tmp_path: Path) -> list[str]:
    """Three in which programs are looked for: with a folder, a text and a program of the same name."""
    (tmp_path / "a" / "tool").mkdir(parents=True)
    for name in ("b", "c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tool").write_text("#!/bin/sh\n")
    (tmp_path / "c" / "tool").chmod(0o755)
    return [str(tmp_path / name) for name in ("a", "missing", "b", "c")]


def test_it_is_the_first_that_can_be_run(folders: list[str]) -> None:
    assert _program("tool", ":".join(folders)) == f"{folders[-1]}/tool"


def test_what_is_not_plain_is_left_to_the_exec(folders: list[str]) -> None:
    """A path, a name that is nowhere, and a folder that is seen from the program's working directory."""
    assert _program("./tool", folders[-1]) is None
    assert _program("tool", ":".join(folders[:-1])) is None
    assert _program("tool", f":{folders[-1]}") is None
    assert _program("tool", f"bin:{folders[-1]}") is None
    assert _program("tool", "") is None


_RUNAWAY = """
import sys
from atoll.guest import worker
from atoll.guest.users import User
from atoll.model import limits
limits.ONE_OFF_CPU_S_MAX = 1
request = {"op": "file.search", "path": sys.argv[2], "pattern": "(x+x+)+y"}
worker.run(User("root", 0, 0, (0,), "/", "/bin/sh"), {"kind": "one_off", "request": request}, int(sys.argv[1]))
"""


def test_work_that_takes_too_long_is_refused_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("x" * 200)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(20)
        fd = theirs.fileno()
        with subprocess.Popen([sys.executable, "-c", _RUNAWAY, str(fd), str(tmp_path)], pass_fds=[fd]) as program:
            theirs.close()
            [frame] = framing.Decoder().feed(ours.recv(65536))
            assert wire.parse_control(frame.payload)["error"]["code"] == "timeout"
            ours.shutdown(socket.SHUT_WR)
            assert program.wait(20) == 0


def test_a_search_whose_caller_leaves_ends(tmp_path: Path) -> None:
    """Also in the middle of an expression that has no end."""
    (tmp_path / "text").write_text("x" * 200)
    ours, theirs = socket.socketpair()
    fd = theirs.fileno()
    patient = _RUNAWAY.replace("CPU_S_MAX = 1", "CPU_S_MAX = 60; limits.ONE_OFF_LOOK_S = 0.05")
    with ours, subprocess.Popen([sys.executable, "-c", patient, str(fd), str(tmp_path)], pass_fds=[fd]) as program:
        theirs.close()
        with pytest.raises(subprocess.TimeoutExpired):
            program.wait(1.0)
        ours.close()
        assert program.wait(10) == 0


def test_a_frame_is_not_cut_by_the_refusal() -> None:
    """The signal comes while the client takes nothing: the frame is sent to its end first."""
    ours, theirs = socket.socketpair()
    sent, got = bytes(8 * limits.MIB), bytearray()
    main = threading.main_thread().ident
    assert main is not None

    def send_and_go_on() -> None:
        Channel(theirs)._send(sent)
        time.sleep(5)

    def read_late() -> None:
        got.extend(ours.recv(65536))  # it is being sent
        signal.pthread_kill(main, signal.SIGXCPU)
        while len(got) < len(sent):
            got.extend(ours.recv(65536))

    held = [(number, signal.signal(number, _refuse_more)) for number in (signal.SIGXCPU, signal.SIGALRM)]
    reader = threading.Thread(target=read_late)
    try:
        with ours, theirs:
            reader.start()
            with pytest.raises(TimeOver):
                send_and_go_on()
            reader.join()
    finally:
        for number, handler in held:
            signal.signal(number, handler)
    assert bytes(got) == sent
