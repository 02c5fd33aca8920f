"""Two sandboxes beside each other: neither sees, hears or reaches the other, and what each does is seen at home."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from atoll import Sandbox
from atoll.testing.server import Server
from tests.ingress_stage import inside
from tests.upstream import WEB, Upstream
from tests.waiting import wait_until

pytestmark = pytest.mark.real

MARK = "neighbour-7d1c40"
# Leaves something in every place that programs of one computer share.
HOLD = f"""
import ctypes, os, socket, sys, time
abstract = socket.socket(socket.AF_UNIX); abstract.bind("\\0{MARK}"); abstract.listen()
libc = ctypes.CDLL(None, use_errno=True)
assert libc.shmget(4242, 4096, 0o1666) >= 0 and libc.semget(4242, 1, 0o1666) >= 0 and libc.msgget(4242, 0o1666) >= 0
open("/dev/shm/{MARK}", "w").close()
listener = socket.create_server(("0.0.0.0", 7777))
print("held", flush=True)
time.sleep(1000)
"""
LOOK = f"""
import ctypes, glob, json, os, socket
libc = ctypes.CDLL(None, use_errno=True)
def connects(family, address):
    sock = socket.socket(family); sock.settimeout(1)
    try: sock.connect(address); return True
    except OSError: return False
def read(path):
    try: return open(path, "rb").read()
    except OSError: return b""
print(json.dumps({{
    "abstract socket": connects(socket.AF_UNIX, "\\0{MARK}"),
    "shared memory": libc.shmget(4242, 4096, 0) >= 0,
    "semaphores": libc.semget(4242, 1, 0) >= 0,
    "messages": libc.msgget(4242, 0) >= 0,
    "shared file": os.path.exists("/dev/shm/{MARK}"),
    "process": any(b"{MARK}" in read(path) for path in glob.glob("/proc/[0-9]*/cmdline")),
    "port": connects(socket.AF_INET, ("10.0.0.2", 7777)),
    "port in the kernel's list": b":1E61 " in read("/proc/net/tcp") + read("/proc/net/tcp6"),
    "name": b"{MARK}" in read("/etc/hostname") + read("/etc/hosts") + read("/proc/sys/kernel/hostname"),
}}))
"""


@pytest.fixture(scope="module")
def server(servers: Upstream, make_data_dir: Callable[[], Path]) -> Iterator[Server]:
    """It listens on an address that its operator has opened to sandboxes, as none should."""
    running = Server(make_data_dir(), servers.settings)
    running.start("--listen", f"{WEB}:0")
    yield running
    running.close()


@pytest.fixture(scope="module")
def pair(server: Server) -> Iterator[tuple[Sandbox, Sandbox]]:
    with server.create(name=MARK) as one, server.create() as other:
        yield one, other


def test_neighbours_share_no_place_where_programs_meet(pair: tuple[Sandbox, Sandbox]) -> None:
    one, other = pair
    for sandbox in pair:
        sandbox.files.write("/tmp/look.py", LOOK)
    one.commands.start(["python3", "-c", HOLD, MARK])
    look = "sudo python3 /tmp/look.py"
    wait_until(lambda: json.loads(one.commands.run(look, check=True).stdout)["port"], 20, "all of it is there")
    assert set(json.loads(one.commands.run(look, check=True).stdout).values()) == {True}, "the control"
    assert set(json.loads(other.commands.run(look, check=True).stdout).values()) == {False}


def test_what_a_neighbour_does_is_not_in_the_numbers(pair: tuple[Sandbox, Sandbox]) -> None:
    """One is busy; the load that the other is told of, and the processes that it can count, stay what they are."""
    one, other = pair
    count = "cat /proc/loadavg; set -- /proc/[0-9]*; echo $#"  # by a program that is there already
    before = other.commands.run(count, check=True).stdout
    busy = one.commands.start("for i in 1 2 3 4; do (while :; do :; done) & done; wait")
    wait_until(lambda: len(one.commands.run("pgrep -f 'while :'").stdout.split()) >= 4, 20, "it is busy")
    assert other.commands.run(count, check=True).stdout == before
    busy.kill()


def test_a_neighbours_port_is_private_from_inside_too(server: Server, pair: tuple[Sandbox, Sandbox]) -> None:
    """By way of the server, where even the operator has opened its address: no more than anybody else outside."""
    one, other = pair
    inside(one)
    port = urlsplit(server.url).port
    token = one.ports.link(8000).headers["X-Atoll-Token"]
    call = f"curl -sS --max-time 5 -H 'Host: 8000-{one.id}.localhost' http://{WEB}:{port}/x"
    with_token = f"{call} -H 'X-Atoll-Token: {token}'"
    assert '"path"' not in other.commands.run(with_token).stdout, "a token is no way out of the sandbox"
    other.network.set_policy([f"{WEB}:{port}"])
    assert "port_private" in other.commands.run(call).stdout
    assert '"path": "/x"' in other.commands.run(with_token).stdout
    without_key = f"curl -sS --max-time 5 http://{WEB}:{port}/v1/sandboxes"
    assert "unauthenticated" in other.commands.run(without_key).stdout
