"""Ids: prefixed, sortable by time, unguessable, and fit for a host name.

An id is a two-letter kind and 36 letters of base32hex (lower case): 48 bits of milliseconds, then 128 bits of chance.
Time first, in an alphabet that sorts as its numbers do, keeps an index in order of creation; 128 bits are what nobody
guesses. No dash and no upper case, because an id stands in host names (`8000-<id>.example.org`) and in the names of
cgroups and folders.
"""

from __future__ import annotations

import base64
import re
from typing import Final

SANDBOX: Final = "sb"
BOX: Final = "bx"
KEY: Final = "ak"
EVENT: Final = "ev"
SNAPSHOT: Final = "sn"
PAUSE: Final = "pa"
VOLUME: Final = "vo"
VOLUME_SNAPSHOT: Final = "vs"
MEMBER: Final = "mb"
WEBHOOK: Final = "wh"
DELIVERY: Final = "dl"

_ALPHABET = re.compile(r"[a-z]{2}[0-9a-v]{36}")


def mint(kind: str, now_ms: int, chance: bytes) -> str:
    """A new id; the clock and 16 random bytes come from the caller, so that tests can choose them."""
    assert len(kind) == 2
    assert len(chance) == 16
    raw = now_ms.to_bytes(6, "big") + chance
    # 22 bytes are 176 bits, 35.2 letters: base32hex pads to 40, of which the last four are "=".
    return kind + base64.b32hexencode(raw).decode("ascii").rstrip("=").lower()


def is_id(kind: str, text: str) -> bool:
    """Whether this can be an id of that kind; it need not exist."""
    return len(text) == 38 and text.startswith(kind) and _ALPHABET.fullmatch(text) is not None
