"""Ports of a sandbox: which listen, wait for one, hear of changes, and the addresses to reach them by."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from atoll.client import _exchange as exchange
from atoll.client._async.portlinks import AsyncPortLinks
from atoll.model import limits
from atoll.model.errors import Internal
from atoll.wire import framing
from atoll.wire.public import PortClosed, PortList, PortOpened, PortsListening, PortView, StreamFailed

Views = list[PortView]
_EVENT = msgspec.json.Decoder(PortsListening | PortOpened | PortClosed | StreamFailed)


class AsyncPorts(AsyncPortLinks):
    """`sb.ports`: servers inside a sandbox."""

    async def list(self) -> Views:
        """The ports that listen, and by which process.

        Example:
            for p in await sb.ports.list():
                print(p.port, p.process)
        """
        return (await self._transport.call("GET", f"{self._path}/ports", PortList)).items

    async def wait(self, port: int, *, timeout_s: float = 30) -> PortView:
        """Wait until a port listens; DeadlineExceeded if it does not in time.

        Example:
            await sb.ports.wait(8000)
        """
        where = f"{self._path}/ports/{port}{exchange.query(timeout_s=timeout_s)}"
        read_s = timeout_s + limits.CLIENT_GRACE_S
        return (await self._transport.call("GET", where, PortList, read_s=read_s)).items[0]

    async def watch(self) -> AsyncIterator[PortsListening | PortOpened | PortClosed]:
        """First what listens now, then each port that opens or closes, until you stop or the sandbox ends.

        Example:
            async for event in sb.ports.watch():
                print(event)
        """
        path = f"{self._path}/ports/events"
        async with self._transport.stream("GET", path, accept=exchange.FRAMES) as response:
            frames = framing.Decoder()
            async for data in response.aiter_raw():
                for frame in frames.feed(data):
                    event = _decoded(frame.payload)
                    if isinstance(event, StreamFailed):
                        raise exchange.problem_error(event.problem)
                    yield event


def _decoded(payload: bytes) -> PortsListening | PortOpened | PortClosed | StreamFailed:
    try:
        event: PortsListening | PortOpened | PortClosed | StreamFailed = _EVENT.decode(payload)
        return event
    except msgspec.DecodeError as error:
        raise Internal("the server's stream cannot be read", code="bad_answer", detail=str(error)) from None
