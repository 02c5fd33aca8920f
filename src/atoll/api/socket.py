"""WebSockets: an accepted one as an object, and its refusal before that as a problem with its own status."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.types import Receive, Send

from atoll.api.errors import ClientGone, of_exception, problem_of
from atoll.model import limits
from atoll.model.errors import AtollError, InvalidArgument, TooLarge
from atoll.wire import codec
from atoll.wire.public import Answer, Problem, TerminalFailed

NORMAL = 1000
FAILED = 1011


class Socket:
    """Messages both ways. ClientGone when the caller has left."""

    def __init__(self, receive: Receive, send: Send, request_id: str) -> None:
        self._receive = receive
        self._send = send
        self._request_id = request_id
        self.accepted = False

    async def accept(self) -> None:
        message = await self._receive()
        if message["type"] != "websocket.connect":
            raise ClientGone
        await self._send({"type": "websocket.accept"})
        self.accepted = True

    async def receive(self) -> bytes | str:
        message = await self._receive()
        if message["type"] != "websocket.receive":
            raise ClientGone
        data = message.get("bytes")
        content: bytes | str = data if data is not None else message.get("text") or ""
        if len(content) > limits.SOCKET_MESSAGE_BYTES_MAX:
            raise TooLarge(f"a message is larger than {limits.SOCKET_MESSAGE_BYTES_MAX} bytes")
        return content

    async def send_bytes(self, data: bytes) -> None:
        await self._send({"type": "websocket.send", "bytes": data})

    async def send_text(self, answer: Answer) -> None:
        await self._send({"type": "websocket.send", "text": codec.encode(answer).decode("utf-8")})

    def problem(self, error: AtollError) -> Problem:
        """An error as the caller may see it."""
        return problem_of(error, self._request_id)

    async def close(self, code: int = NORMAL) -> None:
        await self._send({"type": "websocket.close", "code": code})


async def guarded(socket: Socket, work: Callable[[], Awaitable[None]]) -> None:
    """Do the work; an error after the socket was accepted is its last message, one before that is raised."""
    try:
        await work()
    except ClientGone:
        raise
    except Exception as error:
        if not socket.accepted:
            raise
        await socket.send_text(TerminalFailed(problem=socket.problem(of_exception(error))))
        await socket.close(FAILED)


def upgrade_missing() -> InvalidArgument:
    return InvalidArgument(
        "this path speaks WebSocket", code="upgrade_required", hint="Connect with a WebSocket client."
    )
