"""API keys: minted, recognised, and the first one, which is made at the first start.

The first key is in a file that only its owner can read. It is in the file before it is in the database: a server that
dies between the two finds the file at its next start and adopts the key in it.
"""

from __future__ import annotations

import os
import secrets
import time
from collections import OrderedDict
from pathlib import Path

from atoll.control.authz import ALL_SCOPES, DEFAULT_OWNER, Principal
from atoll.control.clock import Clock
from atoll.control.store import keys as rows
from atoll.control.store.engine import Store
from atoll.control.store.keys import KeyRecord
from atoll.control.store.moments import to_us
from atoll.model import ids, limits
from atoll.model.errors import Internal, Unauthenticated
from atoll.wire import token


class Keys:
    """The keys of one server."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._known: OrderedDict[str, tuple[float, Principal]] = OrderedDict()

    async def authenticate(self, key: str) -> Principal:
        """Who has this key; Unauthenticated if nobody does."""
        if not token.is_key(key):
            raise _unknown_key()
        key_hash = token.key_hash(key)
        cached = self._known.get(key_hash)
        if cached is not None and time.monotonic() - cached[0] < limits.KEY_CACHE_S:
            return cached[1]
        record = await self._store.read(rows.by_hash, key_hash)
        if record is None or not token.same_hash(record.hash, key_hash):
            self._known.pop(key_hash, None)
            raise _unknown_key()
        principal = Principal(record.owner, record.id, record.scopes)
        self._remember(key_hash, principal)
        return principal

    async def create(self, owner: str, name: str) -> tuple[KeyRecord, str]:
        """A new key. It is returned once and never again: only its hash is kept."""
        key = token.key_mint(secrets.token_bytes(token.CHANCE_BYTES))
        return await self._add(owner, name, key), key

    async def ensure_first(self, path: Path) -> None:
        """See to it that the key in the file is a valid one; makes file and key at the first start."""
        key = _read_key(path)
        if key is None:
            if await self._store.read(rows.count):
                return  # the operator has taken the file away; the keys that exist stay as they are
            key = token.key_mint(secrets.token_bytes(token.CHANCE_BYTES))
            _write_key(path, key)
        if await self._store.read(rows.by_hash, token.key_hash(key)) is None:
            await self._add(DEFAULT_OWNER, "first", key)

    async def _add(self, owner: str, name: str, key: str) -> KeyRecord:
        now = self._clock.now()
        record = KeyRecord(
            id=ids.mint(ids.KEY, to_us(now) // 1000, secrets.token_bytes(16)),
            owner=owner,
            name=name,
            hash=token.key_hash(key),
            scopes=ALL_SCOPES,
            created_at=now,
        )
        await self._store.write(rows.add, record)
        return record

    def _remember(self, key_hash: str, principal: Principal) -> None:
        self._known[key_hash] = (time.monotonic(), principal)
        self._known.move_to_end(key_hash)
        while len(self._known) > limits.KEY_CACHE_ENTRIES_MAX:
            self._known.popitem(last=False)


def _unknown_key() -> Unauthenticated:
    return Unauthenticated(
        "the API key is not known here", hint="A local server's first key is in the file `key` of its data directory."
    )


def _read_key(path: Path) -> str | None:
    try:
        key = path.read_text("ascii").strip()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise Internal(f"the key file {path} cannot be read: {error}", code="bad_key_file") from error
    if not token.is_key(key):
        raise Internal(
            f"the file {path} does not hold an API key",
            code="bad_key_file",
            hint="Put the key back, or move the file away to have the keys that exist go on without it.",
        )
    return key


def _write_key(path: Path, key: str) -> None:
    """Whole or not at all: a crash must not leave half a key in the place where the next start looks."""
    draft = path.with_name(path.name + ".new")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(key + "\n")
        file.flush()
        os.fsync(file.fileno())
    os.link(draft, path)  # refuses to replace a file that has appeared in between
    draft.unlink()
