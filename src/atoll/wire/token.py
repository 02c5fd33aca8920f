"""API keys: how they look, how one is minted, and what is stored of it.

A key is `atoll_` and 43 letters of base64url: 256 bits of chance. Because nobody guesses that, a plain SHA-256 is
enough to store; a slow password hash would only slow down every request.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re

PREFIX = "atoll_"
CHANCE_BYTES = 32

_KEY = re.compile(r"atoll_[A-Za-z0-9_-]{43}")


def key_mint(chance: bytes) -> str:
    """A key from 32 random bytes, which the caller brings."""
    assert len(chance) == CHANCE_BYTES
    return PREFIX + base64.urlsafe_b64encode(chance).decode("ascii").rstrip("=")


def is_key(text: str) -> bool:
    """Whether this can be a key; it need not be a known one."""
    return _KEY.fullmatch(text) is not None


def key_hash(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def same_hash(left: str, right: str) -> bool:
    """Equality that takes the same time wherever the two differ."""
    return hmac.compare_digest(left.encode("ascii"), right.encode("ascii"))
