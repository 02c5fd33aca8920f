from __future__ import annotations

import asyncio
import socket

import anyio
import pytest

from atoll.guest import ports
from atoll.model import errors
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
