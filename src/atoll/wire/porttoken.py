"""Tokens for ports: signed, bound to one port of one sandbox, and worthless after their time.

A token is `<seconds since 1970>.<signature>`; the signature covers sandbox, port, generation and end. Whoever has it
may use that port and nothing else, so it can stand in an address that is given away.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re

SECRET_BYTES = 32

_TOKEN = re.compile(r"(\d{1,12})\.([A-Za-z0-9_-]{43})")


def mint(secret: bytes, sandbox_id: str, port: int, generation: int, expires_s: int) -> str:
    """A token that opens one port until `expires_s` (seconds since 1970)."""
    return f"{expires_s}.{_signature(secret, sandbox_id, port, generation, expires_s)}"


def opens(secret: bytes, token: str, sandbox_id: str, port: int, generation: int, now_s: float) -> bool:
    """Whether this token opens that port now."""
    match = _TOKEN.fullmatch(token)
    if match is None or int(match[1]) <= now_s:
        return False
    expected = _signature(secret, sandbox_id, port, generation, int(match[1]))
    return hmac.compare_digest(expected.encode("ascii"), match[2].encode("ascii"))


def expiry_s(token: str) -> int:
    """When it ends, if it is a token at all; else 0."""
    match = _TOKEN.fullmatch(token)
    return int(match[1]) if match else 0


def _signature(secret: bytes, sandbox_id: str, port: int, generation: int, expires_s: int) -> str:
    signed = f"port\n{sandbox_id}\n{port}\n{generation}\n{expires_s}".encode()
    digest = hmac.new(secret, signed, hashlib.sha256).digest()
    return base64.urlsafe_b64encode(digest).decode("ascii").rstrip("=")
