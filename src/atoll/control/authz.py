"""Who is calling, once a key has been recognised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

DEFAULT_OWNER: Final = "default"
ALL_SCOPES: Final = frozenset({"read", "write", "admin"})


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller: whose things it sees, by which key, and what it may do with them."""

    owner: str
    key_id: str
    scopes: frozenset[str]
