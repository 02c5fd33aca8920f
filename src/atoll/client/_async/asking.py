"""One question to a server, outside any sandbox."""

from __future__ import annotations

import os
from typing import TypeVar

import msgspec

from atoll.client._async.transport import AsyncTransport
from atoll.client._config import discover

Answer = TypeVar("Answer")


async def ask(
    method: str,
    path: str,
    kind: type[Answer],
    body: msgspec.Struct | None = None,
    *,
    url: str | None = None,
    api_key: str | None = None,
) -> Answer:
    """Ask, and let go of the connection again."""
    transport = AsyncTransport.acquire(discover(url, api_key, os.environ))
    try:
        return await transport.call(method, path, kind, body)
    finally:
        await transport.release()


async def tell(method: str, path: str, *, url: str | None = None, api_key: str | None = None) -> None:
    """The same where there is nothing to answer."""
    transport = AsyncTransport.acquire(discover(url, api_key, os.environ))
    try:
        await transport.fetch(method, path)
    finally:
        await transport.release()
