"""One request of an HTTP/2 connection and its answer, as an ASGI exchange with the windows of its stream."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any, Protocol

import structlog
from starlette.types import ASGIApp

from atoll.api.http2.heads import RequestHead, answer_head

log = structlog.get_logger(__name__)

Message = MutableMapping[str, Any]
_WITHOUT_BODY = (204, 304)


class Carrier(Protocol):
    """What an exchange needs of its connection. Whoever sends waits first until there is room."""

    async def wait_writable(self) -> None: ...

    def send_head(self, stream_id: int, head: list[tuple[bytes, bytes]], *, end: bool) -> None: ...

    def send_some(self, stream_id: int, data: memoryview) -> int:
        """Send what the windows allow, and say how much that was."""
        ...

    def send_end(self, stream_id: int) -> None: ...

    def acknowledge(self, stream_id: int, size_bytes: int) -> None: ...

    def finished(self, stream_id: int, *, whole: bool) -> None:
        """The application has returned; `whole` if the answer was complete."""
        ...


class Exchange:
    """One stream. A body is acknowledged when the application has taken it, so what waits here fits the window."""

    def __init__(self, carrier: Carrier, stream_id: int, head: RequestHead, scope: dict[str, Any]) -> None:
        self._carrier = carrier
        self._id = stream_id
        self._head = head
        self._scope = scope
        self._body = bytearray()
        self._waits_for_word = head.waits_for_word
        self._answer_begun = False
        self._length_left: int | None = None
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self.request_whole = False
        self.answer_whole = False
        self.gone = False

    async def run(self, app: ASGIApp) -> None:
        """Serve it. Whatever the application does, the stream has an end."""
        try:
            await app(self._scope, self.receive, self.send)
        except (
            Exception
        ) as error:  # the edge lets nothing out; this is a bug in it, or a cancel at the end of the server
            log.error("exchange_failed", error=repr(error))
        finally:
            self._carrier.finished(self._id, whole=self.answer_whole)

    def take_body(self, data: bytes) -> bool:
        """Keep what came; False if nobody will read it any more."""
        if self.answer_whole or self.gone:
            return False
        self._body += data
        self._changed.set()
        return True

    def body_drop(self) -> int:
        """Forget what nobody has read, and say how much that was."""
        size_bytes = len(self._body)
        self._body.clear()
        return size_bytes

    def take_end(self) -> None:
        self.request_whole = True
        self._changed.set()

    def leave(self) -> None:
        """The caller is gone, or has no more interest."""
        self.gone = True
        self._changed.set()
        self._room.set()

    def has_room(self) -> None:
        self._room.set()

    async def receive(self) -> Message:
        if self._waits_for_word and not self._answer_begun and not self.gone:
            self._waits_for_word = False
            self._carrier.send_head(self._id, [(b":status", b"100")], end=False)
        if not self.gone and not self.answer_whole:
            await self._changed.wait()
            self._changed.clear()
        if self.gone or self.answer_whole:
            return {"type": "http.disconnect"}
        body = bytes(self._body)
        self._body.clear()
        if body:
            self._carrier.acknowledge(self._id, len(body))
        return {"type": "http.request", "body": body, "more_body": not self.request_whole}

    async def send(self, message: Message) -> None:
        await self._carrier.wait_writable()
        if self.gone:
            return
        if message["type"] == "http.response.start":
            self._send_head(message)
            return
        await self._send_body(message.get("body", b""))
        if self.gone or message.get("more_body", False):
            return
        if self._length_left:
            raise RuntimeError("the answer is shorter than its length")
        self._carrier.send_end(self._id)
        self._complete()

    def _send_head(self, message: Message) -> None:
        if self._answer_begun:
            raise RuntimeError("an answer has one head")
        self._answer_begun = True
        head = answer_head(message["status"], message.get("headers", ()))
        without = self._head.method == "HEAD" or message["status"] in _WITHOUT_BODY
        length = next((value for name, value in head if name == b"content-length"), None)
        self._length_left = int(length) if length is not None and not without else None
        self._carrier.send_head(self._id, head, end=without)
        if without:
            self._complete()

    async def _send_body(self, data: bytes) -> None:
        if self.answer_whole:
            return  # of an answer that has none: to HEAD, or a status without a body
        if not self._answer_begun:
            raise RuntimeError("an answer begins with its head")
        if self._length_left is not None:
            self._length_left -= len(data)
            if self._length_left < 0:
                raise RuntimeError("the answer is longer than its length")
        left = memoryview(data)
        while left and not self.gone:
            self._room.clear()
            sent = self._carrier.send_some(self._id, left)
            left = left[sent:]
            if left and not sent:
                await self._room.wait()
            elif left:
                await self._carrier.wait_writable()

    def _complete(self) -> None:
        self.answer_whole = True
        self._changed.set()
