"""A Python that is told by a signal draws new random numbers where it stands, and says so; one that cannot says not."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

from atoll.guest.runners import reseeding

SOURCE = Path(__file__).parents[4] / "src"
READY, DRAWN = "ready", "reseeded"
# A runner as it is while code runs: its link, its handler, and a main thread that does not listen.
PROGRAM = """
import random, ssl, sys, time
sys.path.insert(0, {source!r})
from atoll.guest.runners import reseeding
from atoll.guest.runners.link import Link
link = Link()
reseeding.listen(link)
random.seed(1)
before = random.getstate()
{before}
link.send_control(type="ready")
until = time.monotonic() + 20
while random.getstate() == before and time.monotonic() < until: {meanwhile}
print(random.random(), flush=True)
time.sleep(30)
"""


def start(before: str = "", meanwhile: str = "pass") -> tuple[subprocess.Popen[bytes], socket.socket]:
    ours, theirs = socket.socketpair()
    code = PROGRAM.format(source=str(SOURCE), before=before, meanwhile=meanwhile)
    with theirs:
        process = subprocess.Popen([sys.executable, "-c", code], stdin=theirs.fileno(), stdout=subprocess.PIPE)
    ours.settimeout(20)
    said(ours, READY)
    return process, ours


def said(link: socket.socket, word: str) -> None:
    data = b""
    while word.encode() not in data:
        part = link.recv(1024)
        assert part, data
        data += part


@pytest.mark.parametrize("meanwhile", ["pass", "time.sleep(30)", "link.send_control(type='result')"])
def test_what_runs_draws_anew_and_says_so(meanwhile: str) -> None:
    """Also while it sleeps, or says something itself."""
    process, link = start(meanwhile=meanwhile)
    with link, process:
        process.send_signal(reseeding.SIGNAL)
        said(link, DRAWN)
        if "sleep" not in meanwhile:
            assert process.stdout is not None
            assert float(process.stdout.readline()) != Random(1).random()
        process.kill()


@pytest.mark.parametrize(
    "before",
    [
        "import signal; signal.signal(reseeding.SIGNAL, lambda *_: None)",
        "def broken(): raise ValueError\nreseeding.reseed = broken",
        "random.seed = None",
    ],
)
def test_what_cannot_draw_says_nothing_and_lives_on(before: str) -> None:
    process, link = start(before=before, meanwhile="link.send_control(type='result'); time.sleep(0.01)")
    with link, process:
        process.send_signal(reseeding.SIGNAL)
        data = b""
        until = time.monotonic() + 0.5
        while time.monotonic() < until:
            data += link.recv(1024)
        assert b"result" in data, "it goes on"
        assert DRAWN.encode() not in data
        assert process.poll() is None
        process.kill()
