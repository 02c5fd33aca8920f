"""Ingress: who may reach a port of a sandbox, the links that open one, and the connection itself.

Ids are not guessable, so a caller without a key who names one is told whether it exists; a caller with the key of
another owner is not.
"""

from __future__ import annotations

import secrets
import socket
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from atoll.control.authz import WRITE, Principal
from atoll.control.clock import Clock
from atoll.control.ledger import Ledger
from atoll.control.sandboxes import not_running
from atoll.control.sandboxtokens import SandboxTokens, TokenKind
from atoll.control.store import ports as rows
from atoll.control.store.engine import Store
from atoll.model import ids, limits
from atoll.model.errors import Forbidden, InvalidArgument, LimitExceeded, NotFound, Unauthenticated
from atoll.model.lifecycle import SLEEPING, State
from atoll.model.port import ANY_PORT, PortAccess
from atoll.model.sandbox import Sandbox
from atoll.wire import porttoken
from atoll.wire.node import NodePort

Authenticate = Callable[[str], Awaitable[Principal]]
Awake = Callable[[Sandbox], Awaitable[Sandbox]]


@dataclass(frozen=True, slots=True)
class Knock:
    """Someone at a port: an API key, a token of the port, or neither."""

    sandbox_id: str
    port: int
    key: str = ""
    token: str = ""


@dataclass(frozen=True, slots=True)
class PortLink:
    """What opens a port: nothing if it is public, else a token with an end."""

    sandbox_id: str
    port: int
    access: PortAccess
    token: str = ""
    expires_at: datetime | None = None


class Ingress:
    """The doors of all sandboxes."""

    def __init__(
        self,
        store: Store,
        ledger: Ledger,
        node: NodePort,
        clock: Clock,
        authenticate: Authenticate,
        secret: bytes = b"",
    ) -> None:
        """Without a secret the links last as long as this process."""
        self._store = store
        self._ledger = ledger
        self._node = node
        self._clock = clock
        self._authenticate = authenticate
        self._secret = secret or secrets.token_bytes(porttoken.SECRET_BYTES)
        self.tokens = SandboxTokens(self._secret, ledger)
        self._known: OrderedDict[tuple[str, int], tuple[float, PortAccess]] = OrderedDict()
        self._inside: Counter[str] = Counter()
        self.awake: Awake = _stays_asleep
        """What wakes a sleeping sandbox for a caller who may go in; Conflict (not_running) if it may not wake."""

    async def access(self, principal: Principal, reference: str, port: int) -> PortAccess:
        sandbox = await self._ledger.find(principal.owner, reference)
        return await self._access(sandbox.id, port)

    async def access_change(
        self,
        principal: Principal,
        reference: str,
        port: int,
        *,
        public: bool | None = None,
        mask_host: str | None = None,
        revoke_links: bool = False,
    ) -> PortAccess:
        """Change who may reach a port. It holds for the next connection; those that are open go on."""
        sandbox = await self._ledger.find(principal.owner, reference)
        access = await self._store.write(
            rows.change, sandbox.id, port, public=public, mask_host=mask_host, revoke_links=revoke_links
        )
        if port == ANY_PORT:
            self._known = OrderedDict((key, known) for key, known in self._known.items() if key[0] != sandbox.id)
        self._remember(sandbox.id, port, access)
        return access

    async def link(self, principal: Principal, reference: str, port: int, expires_s: float) -> PortLink:
        """What to send along to reach a port, for whoever it is given to."""
        if not 1 <= expires_s <= limits.PORT_LINK_S_MAX:
            raise InvalidArgument(f"expires_s must be between 1 and {limits.PORT_LINK_S_MAX}")
        sandbox = await self._ledger.find(principal.owner, reference)
        access = await self._access(sandbox.id, port)
        if access.public:
            return PortLink(sandbox.id, port, access)
        expires_at = (self._clock.now() + timedelta(seconds=expires_s)).replace(microsecond=0)
        token = porttoken.mint(self._secret, sandbox.id, port, access.generation, int(expires_at.timestamp()))
        return PortLink(sandbox.id, port, access, token, expires_at)

    async def admit(self, knock: Knock) -> PortAccess:
        """The rules of the port, if the caller may go through it and the sandbox runs."""
        record = await self._ledger.record(knock.sandbox_id) if ids.is_id(ids.SANDBOX, knock.sandbox_id) else None
        if record is None:
            raise _no_sandbox(knock.sandbox_id)
        access = await self._access(knock.sandbox_id, knock.port)
        if not access.public and not self._token_opens(knock, access):
            await self._check_key(knock, record.owner)
        await self._check_running(record.sandbox)
        return access

    async def admit_owner(self, principal: Principal, reference: str) -> str:
        """The id of a running sandbox, whose every port is open to its owner."""
        sandbox = await self._ledger.find(principal.owner, reference)
        await self._check_running(sandbox)
        return sandbox.id

    async def dial(self, sandbox_id: str, port: int) -> socket.socket:
        """A connection to the port, for a caller who was admitted and holds a `place`."""
        try:
            return await self._node.dial(sandbox_id, port)
        except NotFound:  # it has ended since
            record = await self._ledger.record(sandbox_id)
            raise (not_running(record.sandbox) if record else _no_sandbox(sandbox_id)) from None

    @contextmanager
    def place(self, sandbox_id: str) -> Iterator[None]:
        """One of the connections that a sandbox, and the server, may have at a time."""
        if self._inside.total() >= limits.INGRESS_CONNECTIONS_MAX:
            raise LimitExceeded("the server has too many connections to ports", code="too_many_connections")
        if self._inside[sandbox_id] >= limits.INGRESS_CONNECTIONS_PER_SANDBOX_MAX:
            raise LimitExceeded("the sandbox has too many connections to its ports", code="too_many_connections")
        self._inside[sandbox_id] += 1
        try:
            yield
        finally:
            self._inside[sandbox_id] -= 1
            if not self._inside[sandbox_id]:
                del self._inside[sandbox_id]

    async def _check_running(self, sandbox: Sandbox) -> None:
        if sandbox.state is State.RUNNING:
            return
        if sandbox.state not in SLEEPING:
            raise not_running(sandbox)
        await self.awake(sandbox)

    def _token_opens(self, knock: Knock, access: PortAccess) -> bool:
        now_s = self._clock.now().timestamp()
        if knock.token and self.tokens.opens(TokenKind.PORTS, knock.sandbox_id, knock.token):
            return True
        return bool(knock.token) and porttoken.opens(
            self._secret, knock.token, knock.sandbox_id, knock.port, access.generation, now_s
        )

    async def _check_key(self, knock: Knock, owner: str) -> None:
        if knock.key:
            principal = await self._authenticate(knock.key)
            if principal.owner != owner:
                raise _no_sandbox(knock.sandbox_id)
            principal.check(WRITE)
            return
        if knock.token:
            raise Forbidden(
                "the link to this port has expired, was revoked, or is for another port",
                code="port_link_refused",
                hint="Ask the owner of the sandbox for a new one.",
            )
        raise Unauthenticated(
            f"port {knock.port} is private",
            code="port_private",
            hint="Use a signed address (`sb.ports.url`), send an API key as X-API-Key, or make the port public.",
        )

    async def _access(self, sandbox_id: str, port: int) -> PortAccess:
        known = self._known.get((sandbox_id, port))
        if known is not None and time.monotonic() - known[0] < limits.PORT_CACHE_S:
            return known[1]
        access = await self._store.read(rows.get, sandbox_id, port)
        self._remember(sandbox_id, port, access)
        return access

    def _remember(self, sandbox_id: str, port: int, access: PortAccess) -> None:
        self._known[sandbox_id, port] = (time.monotonic(), access)
        self._known.move_to_end((sandbox_id, port))
        while len(self._known) > limits.PORT_CACHE_ENTRIES_MAX:
            self._known.popitem(last=False)


async def _stays_asleep(sandbox: Sandbox) -> Sandbox:
    raise not_running(sandbox)


def _no_sandbox(sandbox_id: str) -> NotFound:
    return NotFound(f"there is no sandbox {sandbox_id[:80]!r}", code="sandbox_not_found")
