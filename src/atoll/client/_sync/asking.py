# Generated from src/atoll/client/_async/asking.py by tools/unasync.py: change that file, not this one.
"""One question to a server, outside any sandbox."""

from __future__ import annotations

import os
from typing import TypeVar

import msgspec

from atoll.client._sync.transport import Transport
from atoll.client._config import discover

Answer = TypeVar("Answer")


def ask(
    method: str,
    path: str,
    kind: type[Answer],
    body: msgspec.Struct | None = None,
    *,
    url: str | None = None,
    api_key: str | None = None,
) -> Answer:
    """Ask, and let go of the connection again."""
    transport = Transport.acquire(discover(url, api_key, os.environ))
    try:
        return transport.call(method, path, kind, body)
    finally:
        transport.release()


def tell(method: str, path: str, *, url: str | None = None, api_key: str | None = None) -> None:
    """The same where there is nothing to answer."""
    transport = Transport.acquire(discover(url, api_key, os.environ))
    try:
        transport.fetch(method, path)
    finally:
        transport.release()
