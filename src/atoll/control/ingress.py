"""Ingress: who may reach a port of a sandbox, the links that open one, and the connection itself.

Ids are not guessable, so a caller without a key who names one is told whether it exists; a caller with the key of
another owner is not.
"""

from __future__ import annotations

import math
import secrets
import socket
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta

from atoll.control.authz import WRITE, Principal
from atoll.control.clock import Clock
from atoll.control.ledger import Ledger
from atoll.control.sandboxes import not_running
from atoll.control.sandboxtokens import SandboxTokens, TokenKind
from atoll.control.store import ports as rows
from atoll.control.store.engine import Store
from atoll.control.underway import Underway
from atoll.control.visitlog import VisitLog
from atoll.control.visits import Admission as Admission
from atoll.control.visits import Knock as Knock
from atoll.control.visits import Visit as Visit
from atoll.control.visits import Visits
from atoll.model import ids, limits
from atoll.model.errors import AtollError, Forbidden, InvalidArgument, NotFound, Unauthenticated
from atoll.model.lifecycle import ASLEEP, State
from atoll.model.port import ANY_PORT, PortAccess
from atoll.model.sandbox import Sandbox
from atoll.wire import porttoken
from atoll.wire.node import NodePort

OWNER = "owner"
"""The right of a caller who has shown the key to the API itself."""
LINK = "link"
"""The right of a caller who has shown a link's token, until the link ends."""

Authenticate = Callable[[str, str], Awaitable[Principal]]
Awake = Callable[[Sandbox], Awaitable[Sandbox]]


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
        log: VisitLog,
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
        self.underway = Underway()
        self._visits = Visits(log, self.underway)
        self.check_key: Callable[[str], None] = _holds
        """What raises Unauthenticated if a key, by its id, has ended."""
        self.awake: Awake = _stays_asleep
        """What wakes a sleeping sandbox for a caller who may go in; Conflict (not_running) if it may not wake."""

    async def access(self, principal: Principal, reference: str, port: int) -> PortAccess:
        sandbox = await self._ledger.find(principal.owner, reference)
        return await self._access(sandbox.id, port)

    async def has_common_rules(self, sandbox_id: str) -> bool:
        """Whether a sandbox was made with rules for all of its ports, as façades make theirs; also after its end."""
        return ids.is_id(ids.SANDBOX, sandbox_id) and await self._store.read(rows.has_any, sandbox_id)

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
        """Change who may reach a port, at once: connections of callers who would not be let in now are cut."""
        sandbox = await self._ledger.find(principal.owner, reference)
        access = await self._store.write(
            rows.change, sandbox.id, port, public=public, mask_host=mask_host, revoke_links=revoke_links
        )
        if port == ANY_PORT:
            self._known = OrderedDict((key, known) for key, known in self._known.items() if key[0] != sandbox.id)
        self._remember(sandbox.id, port, access)
        await self._cut_unwelcome(sandbox.id)
        return access

    def cut_key(self, key_id: str) -> None:
        """A key has ended: what its bearer has open ends, tunnels too."""
        for visit in self._visits.by_key(key_id):
            visit.cut()

    async def _cut_unwelcome(self, sandbox_id: str) -> None:
        for visit in self._visits.of(sandbox_id):
            admission = visit.admission
            if admission.by == OWNER:
                continue
            try:
                access = await self._access(sandbox_id, admission.knock.port)
                await self._right(admission.knock, admission.owner, access)
            except AtollError:
                visit.cut()

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

    async def admit(self, knock: Knock) -> Admission:
        """What lets a caller through a port of a sandbox that runs; an error that says why not, if nothing does."""
        record = await self._ledger.record(knock.sandbox_id) if ids.is_id(ids.SANDBOX, knock.sandbox_id) else None
        if record is None:
            raise _no_sandbox(knock.sandbox_id)
        try:
            access = await self._access(knock.sandbox_id, knock.port)
            by, key_id = await self._right(knock, record.owner, access)
            if await self._check_running(record.sandbox):  # it was woken up, which may have taken long
                access = await self._access(knock.sandbox_id, knock.port)
                by, key_id = await self._right(knock, record.owner, access)
        except AtollError as error:
            self._visits.refused(record.owner, knock, error.code)
            raise
        return Admission(knock, record.owner, access, by, key_id)

    async def admit_owner(self, principal: Principal, reference: str, port: int) -> Admission:
        """The same for the owner of a sandbox, to whom every port of it is open."""
        sandbox = await self._ledger.find(principal.owner, reference)
        knock = Knock(sandbox.id, port, source=principal.source)
        try:
            await self._check_running(sandbox)
        except AtollError as error:
            self._visits.refused(principal.owner, knock, error.code)
            raise
        return Admission(knock, principal.owner, PortAccess(), OWNER, principal.key_id)

    def visit(self, admission: Admission) -> AbstractContextManager[Visit]:
        """One of the connections that a sandbox, and the server, may have at a time."""
        self.check_key(admission.key_id)  # it may have waited for its sandbox
        return self._visits.begin(admission, self._link_left_s(admission))

    def _link_left_s(self, admission: Admission) -> float:
        if admission.by != LINK:
            return math.inf
        return porttoken.expiry_s(admission.knock.token) - self._clock.now().timestamp()

    def stands_still(self, visit: Visit) -> bool:
        """Whether the sandbox has been put in standby since the connection began. It costs a look at memory."""
        return self._ledger.in_standby(visit.admission.knock.sandbox_id)

    async def wake(self, visit: Visit) -> None:
        """Something is about to go in through a connection that is open; an error if the sandbox may not wake."""
        record = await self._ledger.record(visit.admission.knock.sandbox_id)
        if record is not None:
            await self._check_running(record.sandbox)

    async def dial(self, sandbox_id: str, port: int) -> socket.socket:
        """A connection to the port, for a caller who was admitted and is on a `visit`."""
        try:
            return await self._node.dial(sandbox_id, port)
        except NotFound:  # it has ended since
            record = await self._ledger.record(sandbox_id)
            raise (not_running(record.sandbox) if record else _no_sandbox(sandbox_id)) from None

    async def _check_running(self, sandbox: Sandbox) -> bool:
        """Whether it had to be woken up for that."""
        if sandbox.state is State.RUNNING and not self._ledger.in_standby(sandbox.id):
            return False
        if sandbox.state is not State.RUNNING and sandbox.state not in ASLEEP:
            raise not_running(sandbox)
        await self.awake(sandbox)  # also one that somebody is waking already: this waits for it
        return True

    async def _right(self, knock: Knock, owner: str, access: PortAccess) -> tuple[str, str]:
        """By which right a caller may go through, and with which key if it is one."""
        if access.public:
            return "public", ""
        if knock.token and self.tokens.opens(TokenKind.PORTS, knock.sandbox_id, knock.token):
            return "token", ""
        if knock.token and self._link_opens(knock, access):
            return LINK, ""
        return "key", await self._check_key(knock, owner)

    def _link_opens(self, knock: Knock, access: PortAccess) -> bool:
        now_s = self._clock.now().timestamp()
        return porttoken.opens(self._secret, knock.token, knock.sandbox_id, knock.port, access.generation, now_s)

    async def _check_key(self, knock: Knock, owner: str) -> str:
        if knock.key:
            principal = await self._authenticate(knock.key, knock.source)
            if principal.owner != owner:
                raise _no_sandbox(knock.sandbox_id)
            principal.check(WRITE)
            return principal.key_id
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


def _holds(_key_id: str) -> None:
    pass


async def _stays_asleep(sandbox: Sandbox) -> Sandbox:
    raise not_running(sandbox)


def _no_sandbox(sandbox_id: str) -> NotFound:
    return NotFound(f"there is no sandbox {sandbox_id[:80]!r}", code="sandbox_not_found")
