"""Whom the SDK trusts over TLS: one answer for requests, tunnels and WebSockets."""

from __future__ import annotations

import functools
import ssl

import httpx2

from atoll.client._config import Config


def context(config: Config) -> ssl.SSLContext:
    """What checks the server's certificate: against its own CA where that is known, else against the usual ones."""
    return _context(config.ca)


@functools.cache
def _context(ca: str) -> ssl.SSLContext:
    if ca:
        return ssl.create_default_context(cafile=ca)
    return httpx2.create_ssl_context()  # 100 ms: made once, and only for a server with TLS
