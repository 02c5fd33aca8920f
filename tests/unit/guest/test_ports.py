from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable

import anyio
import pytest

from atoll.guest import ports
from atoll.guest.channel import Channel
from atoll.guest.failure import Disconnected
from atoll.model import errors, limits
from atoll.node.guestlink import GuestLink
from atoll.wire import guest as wire

TABLE = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 12345 1 0
   1: 0100007F:1F91 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0        0 12346 1 0
   2: garbage
"""


def test_only_what_listens() -> None:
    assert ports.parse_table(TABLE) == [ports.Listening("127.0.0.1", 8080, 12345)]
    assert ports.parse_address("00000000000000000000000001000000:0050") == ("::1", 80)


def test_the_dearer_a_look_the_rarer() -> None:
    assert ports.rest_s(0.0) == ports.rest_s(0.0004) == limits.PORTS_PAUSE_S_MIN == 0.02
    assert ports.rest_s(0.002) == pytest.approx(0.06)
    assert ports.rest_s(1.0) == limits.PORTS_PAUSE_S_MAX


def test_a_place_with_other_sockets_has_closed_and_opened() -> None:
    """But workers that share a port come and go without an event, as long as one of them stays."""
    one, two, other = (ports.Listening("0.0.0.0", 80, inode) for inode in (1, 2, 3))
    more = ports.Listening("0.0.0.0", 81, 4)
    assert ports.changes([], [one, two, more]) == ([one, more], [])
    assert ports.changes([one, two], [two, other]) == ([], [])
    assert ports.changes([one, two], [other]) == ([other], [one])
    assert ports.changes([one, more], [one]) == ([], [more])


@pytest.mark.anyio
async def test_a_watch_tells_of_a_restart(link: GuestLink) -> None:
    """However short the time between: whether a look falls into it or not, both are told."""
    shared = [socket.socket() for _ in range(2)]
    for server in shared:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    shared[0].bind(("127.0.0.1", 0))
    shared[0].listen()
    port = shared[0].getsockname()[1]
    shared[1].bind(("127.0.0.1", port))
    async with link.stream("ports.watch", idle_s=5) as stream:
        await stream.receive()
        shared[0].close()
        shared[1].listen()
        types: list[str] = []
        while len(types) < 2:
            event = await stream.receive()
            if isinstance(event, wire.Event) and event.value["port"] == port:  # others on this host open ports, too
                types.append(event.value["type"])
        shared[1].close()
    assert types == ["closed", "opened"]


@pytest.mark.anyio
async def test_a_port_is_waited_for_listed_and_watched(link: GuestLink) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
        with pytest.raises(errors.DeadlineExceeded):
            await link.call("ports.wait", {"port": port, "timeout_s": 0.05})
        async with link.stream("ports.watch", idle_s=5) as stream:
            await stream.receive()

            async def listen() -> None:
                await asyncio.sleep(0.05)
                server.listen()

            async with anyio.create_task_group() as group:
                group.start_soon(listen)
                found = await link.call("ports.wait", {"port": port})
            assert found["ports"][0]["port"] == port
            assert found["ports"][0]["process"]
            opened = await stream.receive()
            assert isinstance(opened, wire.Event)
            assert (opened.value["type"], opened.value["port"]) == ("opened", port)
            server.close()
            closed = await stream.receive()
            assert isinstance(closed, wire.Event)
            assert (closed.value["type"], closed.value["port"]) == ("closed", port)


def test_a_pause_among_very_many_descriptors(high: Callable[[int], int]) -> None:
    ours, theirs = socket.socketpair()
    with ours, socket.socket(fileno=high(theirs.detach())) as theirs:
        channel = Channel(theirs)
        ports._pause(channel, 0.001)
        ours.close()
        with pytest.raises(Disconnected):
            ports._pause(channel, 60)


def test_a_descriptor_that_is_closed_meanwhile_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    really = os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: ["99999", *really(path)] if path.endswith("/fd") else really(path))
    with socket.create_server(("127.0.0.1", 0)) as server:
        inode = os.fstat(server.fileno()).st_ino
        assert ports.owners({inode})[inode][0] == os.getpid()
