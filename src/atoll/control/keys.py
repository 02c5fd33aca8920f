"""API keys: minted, recognised, revoked, and the first one, which is made at the first start.

The first key is in a file that only its owner can read. It is in the file before it is in the database: a server that
dies between the two finds the file at its next start and adopts the key in it.
"""

from __future__ import annotations

import os
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection

from atoll.control.authz import ALL_SCOPES, DEFAULT_OWNER, Principal, check_scopes
from atoll.control.clock import Clock
from atoll.control.events import Events
from atoll.control.keyends import KeyEnds, expired, revoked
from atoll.control.refusallog import UNKNOWN, Refusal
from atoll.control.store import events as event_rows
from atoll.control.store import keys as rows
from atoll.control.store import tenants as tenant_rows
from atoll.control.store.engine import Store
from atoll.control.store.keys import Bearer
from atoll.control.store.keys import KeyRecord as KeyRecord
from atoll.control.store.moments import to_us
from atoll.control.store.tenants import Tenant
from atoll.model import ids, limits
from atoll.model.errors import Forbidden, Internal, InvalidArgument, LimitExceeded, NotFound, Unauthenticated
from atoll.model.event import Event
from atoll.model.quota import Quota, has_budget
from atoll.model.text import is_text
from atoll.wire import token

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class KeySpec:
    """A key that somebody asks for."""

    name: str
    scopes: frozenset[str] = ALL_SCOPES
    member: str | None = None
    expires_at: datetime | None = None
    quota: Quota = field(default_factory=Quota)


@dataclass(frozen=True, slots=True)
class _Known:
    """A key that was recognised a moment ago."""

    at_s: float
    principal: Principal
    expires_at: datetime | None


class Keys:
    """The keys of one server."""

    def __init__(self, store: Store, clock: Clock, events: Events) -> None:
        self._store = store
        self._clock = clock
        self._events = events
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._quotas: OrderedDict[str, tuple[float, Quota]] = OrderedDict()
        """Of tenants, and when they were read."""
        self._changes = 0
        """How often what was known had to be forgotten."""
        self._used: dict[str, datetime] = {}
        self.ends = KeyEnds(clock)
        self._filed_hash = ""
        """Of the key in the server's own file."""
        self.on_refused: Callable[[Refusal], None] = _nobody_listens
        """Told of each key that does not open anything."""

    async def authenticate(self, key: str, source: str = "") -> Principal:
        """Who has this key; Unauthenticated if nobody does, or it has expired or been revoked."""
        if not token.is_key(key):
            raise self._refused(_unknown_key(), source)
        key_hash = token.key_hash(key)
        known = self._known.get(key_hash)
        if known is None or time.monotonic() - known.at_s >= limits.KEY_CACHE_S:
            changes = self._changes
            known = self._recognised(key_hash, await self._store.read(rows.bearer, key_hash), source)
            if changes == self._changes:  # else what was read may be from before the change
                _remember(self._known, key_hash, known)
        now = self._clock.now()
        if known.expires_at is not None and known.expires_at <= now:
            raise self._refused(expired(), source, known.principal.owner, known.principal.key_id)
        self.ends.expects(known.principal.key_id, known.expires_at)
        self._used[known.principal.key_id] = now
        return known.principal

    async def with_quotas(self, principal: Principal) -> Principal:
        """A caller who acts by a key that it does not show, or by none, with what that key and its tenant may have."""
        if not principal.key_id:
            return replace(principal, tenant_quota=await self._tenant_quota(principal.owner))
        found = await self._store.read(rows.bearer_by_id, principal.owner, principal.key_id)
        if found is None:
            return principal
        return replace(principal, tenant_quota=found.tenant_quota, key_quota=found.key.quota)

    async def _tenant_quota(self, owner: str) -> Quota:
        """What a tenant may have; remembered like keys, because each command by a token of a sandbox asks for it."""
        known = self._quotas.get(owner)
        if known is not None and time.monotonic() - known[0] < limits.KEY_CACHE_S:
            return known[1]
        changes = self._changes
        tenant = await self._store.read(tenant_rows.by_id, owner)
        quota = Quota() if tenant is None else tenant.quota
        if changes == self._changes:
            _remember(self._quotas, owner, (time.monotonic(), quota))
        return quota

    async def create(self, by: Principal | None, owner: str, spec: KeySpec) -> tuple[KeyRecord, str]:
        """A new key. It is returned once and never again: only its hash is kept."""
        _check_spec(spec, self._clock.now())
        if by is not None and not spec.scopes <= by.scopes:
            raise Forbidden("a key cannot give more than it has", code="scope_missing")
        key = token.key_mint(secrets.token_bytes(token.CHANCE_BYTES))
        record = self._record(owner, spec, key)
        event = self._events.of(by, "key.created", owner=owner, target=record.id, detail={"name": spec.name})
        record = await self._store.write(_add_checked, record, event, self._clock.now(), self._filed_hash)
        self._events.written()
        return record, key

    async def every(self, owner: str) -> list[KeyRecord]:
        await self.flush_used()
        return await self._store.read(rows.of_owner, owner)

    async def revoke(self, by: Principal, owner: str, key_id: str) -> KeyRecord:
        """Have a key open nothing from now on, in this process at once; a revoked one stays as it is."""
        event = self._events.of(by, "key.revoked", owner=owner, target=key_id)
        record = await self._store.write(_revoke, owner, key_id, event)
        if record is None:
            raise NotFound(f"there is no key {key_id[:80]!r}", code="key_not_found", hint="List the keys to see them.")
        self.revoked([key_id])
        self._events.written()
        return record

    def revoked(self, key_ids: Iterable[str]) -> None:
        """These keys open nothing any more, by the record."""
        self.forget()
        for key_id in key_ids:
            self.ends.end(key_id, revoked)

    def forget(self) -> None:
        """Keys, members or tenants have changed: recognise every key anew."""
        self._changes += 1
        self._known.clear()
        self._quotas.clear()

    async def flush_used(self) -> None:
        """Write when keys were last used."""
        used, self._used = self._used, {}
        if not used:
            return
        try:
            await self._store.write(rows.note_used, used)
        except Exception:
            self._used = used | self._used  # for the next time, where nothing newer is known
            raise

    async def forget_ended(self) -> None:
        """Forget keys that have opened nothing for long: what they were is in the audit log."""
        before = self._clock.now() - timedelta(seconds=limits.KEYS_ENDED_KEPT_S)
        await self._store.write(rows.forget_ended, before, self._filed_hash)

    async def ensure_first(self, path: Path) -> None:
        """See to it that the key in the file is a valid one; makes file and key at the first start."""
        await self._store.write(tenant_rows.ensure, Tenant(DEFAULT_OWNER, self._clock.now()))
        key = _read_key(path)
        if key is None:
            if await self._store.read(rows.count):
                return  # the operator has taken the file away; the keys that exist stay as they are
            key = token.key_mint(secrets.token_bytes(token.CHANCE_BYTES))
            _write_key(path, key)
        self._filed_hash = token.key_hash(key)
        if await self._store.read(rows.by_hash, self._filed_hash) is None:
            record = self._record(DEFAULT_OWNER, KeySpec("first"), key)
            await self._store.write(rows.add, record)

    def _record(self, owner: str, spec: KeySpec, key: str) -> KeyRecord:
        now = self._clock.now()
        return KeyRecord(
            id=ids.mint(ids.KEY, to_us(now) // 1000, secrets.token_bytes(16)),
            owner=owner,
            name=spec.name,
            hash=token.key_hash(key),
            scopes=check_scopes(spec.scopes),
            created_at=now,
            member_id=spec.member,
            quota=spec.quota,
            expires_at=spec.expires_at,
        )

    def _refused(
        self, error: Unauthenticated, source: str, owner: str = DEFAULT_OWNER, key_id: str = UNKNOWN
    ) -> Unauthenticated:
        self.on_refused(Refusal(error.code, source, owner, key_id))
        return error

    def _recognised(self, key_hash: str, found: Bearer | None, source: str) -> _Known:
        self._known.pop(key_hash, None)
        if found is None or not token.same_hash(found.key.hash, key_hash):
            raise self._refused(_unknown_key(), source)
        record = found.key
        scopes = record.scopes if found.member_scopes is None else record.scopes & found.member_scopes
        if record.revoked_at is not None or found.tenant_removed or not scopes:
            raise self._refused(revoked(), source, record.owner, record.id)
        principal = Principal(record.owner, record.id, scopes, tenant_quota=found.tenant_quota, key_quota=record.quota)
        return _Known(time.monotonic(), principal, record.expires_at)


def _remember(cache: OrderedDict[str, T], name: str, known: T) -> None:
    cache[name] = known
    cache.move_to_end(name)
    while len(cache) > limits.KEY_CACHE_ENTRIES_MAX:
        cache.popitem(last=False)


def _check_spec(spec: KeySpec, now: datetime) -> None:
    check_key_name(spec.name)
    check_scopes(spec.scopes)
    spec.quota.checked()
    if has_budget(spec.quota):
        raise InvalidArgument(
            "a key has no budget of its own",
            code="invalid_quota",
            hint="Tenants and sandboxes have budgets; a key has quotas and rates.",
        )
    if spec.expires_at is not None and spec.expires_at <= now:
        raise InvalidArgument("a key cannot expire in the past", code="invalid_expiry")


def check_key_name(name: str) -> None:
    """A name is for people: any text of one line."""
    if not 0 < len(name) <= limits.KEY_NAME_CHARS_MAX or not is_text(name) or not name.isprintable():
        raise InvalidArgument(
            f"{name[:40]!r} cannot be a name",
            code="invalid_name",
            hint=f"1 to {limits.KEY_NAME_CHARS_MAX} printable characters.",
        )


def _add_checked(connection: Connection, record: KeyRecord, event: Event, now: datetime, kept_hash: str) -> KeyRecord:
    if rows.count_valid(connection, record.owner, now) >= limits.KEYS_PER_TENANT_MAX:
        raise LimitExceeded("the tenant has too many keys", code="too_many_keys", hint="Revoke some.")
    if record.member_id is not None:
        member = tenant_rows.member(connection, record.owner, record.member_id)
        if member is None:
            raise NotFound(f"there is no member {record.member_id[:80]!r}", code="member_not_found")
        record = replace(record, member_id=member.id, scopes=record.scopes & member.scopes)
    rows.add(connection, record)
    rows.trim_ended(connection, record.owner, now, limits.KEYS_ENDED_PER_TENANT_MAX, kept_hash)
    event_rows.add(connection, event)
    return record


def _revoke(connection: Connection, owner: str, key_id: str, event: Event) -> KeyRecord | None:
    if rows.revoke(connection, owner, key_id, event.at):
        event_rows.add(connection, event)
    return rows.by_id(connection, owner, key_id)


def _nobody_listens(_: object) -> None:
    pass


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
