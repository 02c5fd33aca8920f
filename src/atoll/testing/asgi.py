"""A caller of an ASGI application in the same process, who can send slowly, read slowly, and leave in the middle."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import anyio
from starlette.types import ASGIApp, Message


@dataclass(slots=True)
class Answer:
    """What came back. `complete` is False where the application stopped in the middle."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    complete: bool = False

    def json(self) -> Any:
        return json.loads(self.body)

    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.body.splitlines()]


class Caller:
    """Makes requests with a key; `gone`, if given, is the moment at which the caller leaves."""

    def __init__(self, app: ASGIApp, key: str = "") -> None:
        self._app = app
        self._key = key

    async def ask(
        self,
        method: str,
        target: str,
        body: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
        chunks: AsyncIterator[bytes] | None = None,
        gone: anyio.Event | None = None,
        begun: anyio.Event | None = None,
    ) -> Answer:
        """One request. `body` is bytes or becomes JSON; `chunks` is a body that comes piece by piece."""
        answer = Answer()
        content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        incoming = self._incoming(content, chunks, gone or anyio.Event())

        async def receive() -> Message:
            return await anext(incoming)

        async def send(message: Message) -> None:
            await anyio.lowlevel.checkpoint()
            if message["type"] == "http.response.start":
                answer.status = message["status"]
                answer.headers = {name.decode(): value.decode() for name, value in message["headers"]}
                return
            answer.body += message.get("body", b"")
            answer.complete = not message.get("more_body", False)
            if begun is not None and answer.body:
                begun.set()

        await self._app(self._scope(method, target, headers or {}), receive, send)
        return answer

    async def _incoming(
        self, content: bytes, chunks: AsyncIterator[bytes] | None, gone: anyio.Event
    ) -> AsyncIterator[Message]:
        if chunks is not None:
            async for chunk in chunks:
                yield {"type": "http.request", "body": chunk, "more_body": True}
                if gone.is_set():
                    yield {"type": "http.disconnect"}
        yield {"type": "http.request", "body": content, "more_body": False}
        await gone.wait()
        while True:
            yield {"type": "http.disconnect"}

    def _scope(self, method: str, target: str, headers: Mapping[str, str]) -> dict[str, Any]:
        path, _, query = target.partition("?")
        given = {**({"authorization": f"Bearer {self._key}"} if self._key else {}), **headers}
        return {
            "type": "http",
            "method": method,
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(name.lower().encode(), value.encode()) for name, value in given.items()],
        }
