"""The transparent proxy of one sandbox: takes what was redirected to it, finds out what it is, and lets it on or not.

    accepted ─▶ first bytes ─▶ judged ─▶ passed on as it is        TLS, and what is neither TLS nor HTTP
                     ▲            │  └──▶ looked at, request by request   HTTP; TLS where a rule or a secret needs it
                     │            └─────▶ refused: reset, or an answer that says why
                     └── silent: connected; if the client speaks before the server does, judged by what it says,
                         else, and if it began as nothing common does, passed on and looked at until it is clear

Every step has a time limit, every buffer a bound, and every connection ends in one event. A sandbox that opens them
faster than it may waits: its next ones are taken later, and what it does meanwhile is its own kernel's work.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import math
import os
import socket
import ssl
import struct
import time
from collections.abc import Callable
from ipaddress import IPv4Address

import anyio
import structlog

from atoll.model import limits
from atoll.model.policy import Verdict
from atoll.node.egress import http1, http2
from atoll.node.egress.buffer import Buffer
from atoll.node.egress.ca import Authority
from atoll.node.egress.channel import Channel, Plain, Tls
from atoll.node.egress.dns_server import DNS_PORT, DnsServer
from atoll.node.egress.gate import Flow, Gate
from atoll.node.egress.judge import Bench
from atoll.node.egress.pace import Pace
from atoll.node.egress.passage import Look, Passage
from atoll.node.egress.requests import Site
from atoll.node.egress.sniff import Kind, Sniffed, sniff
from atoll.node.network import plan

log = structlog.get_logger("atoll.egress")

_SO_ORIGINAL_DST = 80
_WEB_PORTS = (80, 443)
H2 = "h2"
HTTP1 = ("http/1.1",)


class Proxy:
    """Serves one sandbox."""

    def __init__(
        self,
        gate: Gate,
        bench: Bench,
        names: DnsServer,
        authority: Callable[[], Authority],
        trusted: Callable[[bool], ssl.SSLContext],
        buffer: Buffer,
    ) -> None:
        self._gate = gate
        self._names = names
        self._bench = bench
        self._authority = authority
        self._trusted = trusted
        self._buffer = buffer
        self._pace = Pace(limits.EGRESS_TAKEN_PER_S, limits.EGRESS_TAKEN_AT_ONCE)

    async def run(self, listener: socket.socket) -> None:
        """Take connections until cancelled. More than a sandbox may have are closed as they come."""
        loop = asyncio.get_running_loop()
        pause_s = 0.0

        def accept() -> None:
            """Called while one waits; the next one is the next turn's."""
            nonlocal pause_s
            try:
                sock, _ = listener.accept()
                sock.setblocking(False)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                log.warning("accept failed", sandbox_id=self._gate.sandbox_id, error=str(error))
                pause_s = limits.LOOP_RETRY_S
            else:
                self._take(sock, tasks)
                pause_s = self._pace.take(time.monotonic())
            if pause_s > 0:
                loop.remove_reader(listener)
                paused.set()

        async with anyio.create_task_group() as tasks:
            while True:
                paused = anyio.Event()
                loop.add_reader(listener, accept)
                try:
                    await paused.wait()
                finally:
                    loop.remove_reader(listener)
                await anyio.sleep(pause_s)

    def _take(self, sock: socket.socket, tasks: anyio.abc.TaskGroup) -> None:
        inside = Plain(sock)
        try:
            address, port = original_destination(sock)
        except OSError:
            inside.reset()
            return
        if (str(address), port) == (plan.OUTER_ADDRESS, DNS_PORT):
            self._names.take_tcp(inside, tasks)
            return
        reason = self._gate.refuse_early()
        if reason:
            self._gate.turned_away(address, port, reason)
            inside.reset()
            return
        flow = Flow(address, port, anyio.CancelScope(), time.monotonic(), in_judgement=True)
        self._gate.opened(flow)
        tasks.start_soon(self._serve, flow, inside)

    async def _serve(self, flow: Flow, inside: Plain) -> None:
        try:
            with flow.scope:
                try:
                    await self._connection(flow, inside)
                except (OSError, TimeoutError) as error:
                    if flow.verdict.allowed and not flow.cut_reason:
                        flow.verdict = Verdict(True, f"broke: {_words(error)}", flow.verdict.rule)
                except Exception as error:  # one bad connection must not end the others; it ends refused
                    log.error("proxy failed", sandbox_id=self._gate.sandbox_id, error=repr(error))
                    flow.cut_reason = "internal"
        finally:
            refused = bool(flow.cut_reason) or not flow.verdict.allowed
            inside.reset() if refused and not flow.answered else inside.close()
            self._gate.ended(flow)

    async def _connection(self, flow: Flow, inside: Plain) -> None:
        if self._bench.forbidden(flow.address) and not self._gate.pins.fake_name(flow.address):
            flow.verdict = Verdict(False, self._bench.forbidden(flow.address))
            return
        target = flow.address
        while True:
            sniffed = await _first_bytes(inside, flow.port)
            if not await self._judge(flow, inside, target, sniffed):
                return
            if sniffed.kind is not Kind.MORE:
                await self._pass(flow, inside, sniffed)
                return
            if self._gate.must_be_http(flow):
                if not inside.first and await inside.read_first(limits.EGRESS_HANDSHAKE_S_MAX):
                    continue  # a client that took its time; nobody was connected meanwhile
                flow.verdict = Verdict(False, "not_http", flow.verdict.rule)
                return
            if await self._passed_undecided(flow, inside):
                return

    async def _judge(self, flow: Flow, inside: Plain, target: IPv4Address, sniffed: Sniffed) -> bool:
        """Whether the connection may go on, as far as it is known what it is."""
        flow.protocol = sniffed.kind.value
        name = sniffed.name if sniffed.kind is Kind.TLS else _host_in(inside.first, sniffed.kind)
        opaque = sniffed.kind in (Kind.OTHER, Kind.MORE)
        if sniffed.kind is Kind.MORE and inside.first and not sniffed.strange:
            flow.verdict = Verdict(False, "unfinished")  # it began as TLS or a request does, and did not go on
            return False
        if not flow.asked or name != ("" if opaque else flow.name):  # nobody is asked twice about one thing
            flow.in_judgement = True
            ruling = await self._bench.rule(self._gate, target, flow.port, name, opaque=opaque)
            flow.in_judgement = False
            flow.verdict, flow.asked = ruling.verdict, ruling.asked
            flow.name, flow.proven = ruling.name, ruling.proven
            flow.address = ruling.address or flow.address
        reason = self._objection(flow, sniffed) if flow.verdict.allowed else ""
        if reason:
            flow.verdict = Verdict(False, reason, flow.verdict.rule)
        if not flow.verdict.allowed and sniffed.kind is Kind.HTTP:
            flow.answered = True
            await inside.send(http1.refusal_bytes(flow.verdict.reason))
            await inside.send_end()
            await _drained(inside)
        return flow.verdict.allowed

    def _objection(self, flow: Flow, sniffed: Sniffed) -> str:
        """Why a connection that was ruled to be allowed does not go on all the same."""
        if not self._gate.still_allows(flow):
            return "policy_changed"
        if self._gate.rests_on_a_claim(flow):
            return "name_mismatch"
        if sniffed.kind is Kind.OTHER and self._gate.must_be_http(flow):
            return "not_http"
        return "unclear_hello" if not sniffed.clear and self._gate.judges_requests(flow) else ""

    async def _passed_undecided(self, flow: Flow, inside: Plain) -> bool:
        """Connect a client that has not said what it is. False if it now speaks before the server: nothing has passed.

        Bytes pass while they could still become anything, and before they have become what names a host it is cut.
        """
        outside = await _dial(flow.address, flow.port)
        try:
            if not inside.first and await _speaks_first(inside, outside):
                return False
            await Passage(self._gate, flow, inside, outside, self._buffer).run(self._late_look(flow))
            return True
        finally:
            outside.close()

    def _late_look(self, flow: Flow) -> Look:
        heard, looks = bytearray(), 0

        def look(data: bytes) -> bool | None:
            nonlocal looks
            heard.extend(data)
            looks += 1
            sniffed = sniff(bytes(heard))
            if sniffed.kind is Kind.MORE and looks < limits.EGRESS_LOOKS_MAX:
                return None
            flow.protocol = sniffed.kind.value
            if sniffed.kind is Kind.OTHER:
                return True
            may_pass = not self._gate.judges_requests(flow)
            flow.name, flow.proven = sniffed.name, False
            return may_pass

        return look

    async def _pass(self, flow: Flow, inside: Plain, sniffed: Sniffed) -> None:
        gate = self._gate
        if sniffed.kind is Kind.TLS and gate.must_look(flow.name, flow.port):
            await self._look_inside_tls(flow, inside, sniffed.protocols)
        elif sniffed.kind is Kind.HTTP and gate.judges_requests(flow):
            await self._look_inside(flow, inside, None)
        elif sniffed.kind is Kind.HTTP2 and gate.judges_requests(flow):
            flow.cut_reason = "http2_without_tls"
        else:
            outside = await _dial(flow.address, flow.port)
            try:
                await Passage(gate, flow, inside, outside, self._buffer).run()
            finally:
                outside.close()

    async def _look_inside_tls(self, flow: Flow, inside: Plain, offered: tuple[str, ...]) -> None:
        """TLS that ends here on both sides. The server's choice of protocol is what the client is offered."""
        flow.looked_inside = True
        plain = await _dial(flow.address, flow.port)
        try:
            outside = Tls(plain, self._trusted("h2" in offered), server_side=False, name=flow.name)
            try:
                await outside.handshake()
            except ssl.SSLCertVerificationError as error:
                await self._not_trusted(flow, inside, error)
                return
            flow.proven = True
            chosen = (H2,) if outside.protocol == H2 else HTTP1
            tls = Tls(inside, self._authority().context(flow.name, chosen), server_side=True, name=None)
            await tls.handshake()
            await self._look_inside(flow, tls, outside)
        finally:
            plain.close()

    async def _not_trusted(self, flow: Flow, inside: Plain, error: ssl.SSLCertVerificationError) -> None:
        """The server is not who it should be: the client hears so in an answer that only we could have sent."""
        flow.cut_reason = "upstream_certificate"
        log.info("certificate not trusted", sandbox_id=self._gate.sandbox_id, error=str(error.verify_message))
        tls = Tls(inside, self._authority().context(flow.name, HTTP1), server_side=True, name=None)
        await tls.handshake()
        flow.answered = True
        await tls.send(http1.refusal_bytes("upstream_certificate"))
        await tls.send_end()
        await _drained(tls)

    async def _look_inside(self, flow: Flow, inside: Channel, outside: Tls | None) -> None:
        """Requests one by one; over TLS to a server that is connected already."""
        flow.looked_inside = True

        async def connect() -> Channel:
            return outside or await _dial(flow.address, flow.port)

        site = Site(flow.name, flow.address, flow.port, tls=outside is not None, connect=connect)
        if outside is not None and outside.protocol == H2:
            if not self._gate.may_cost(flow, limits.EGRESS_HTTP2_PLACES):
                flow.cut_reason = "too_many_connections"
                return
            await http2.serve(self._gate, flow, inside, outside, site, self._buffer)
        else:
            await http1.serve(self._gate, flow, inside, site, self._buffer)
        await inside.send_end()
        if flow.answered:
            await _drained(inside)


def original_destination(sock: socket.socket) -> tuple[IPv4Address, int]:
    """Where a redirected connection wanted to go, as the kernel remembers it."""
    raw = sock.getsockopt(socket.SOL_IP, _SO_ORIGINAL_DST, 16)
    port, packed = struct.unpack_from("!2xH4s", raw)
    return IPv4Address(packed), port


async def _first_bytes(inside: Plain, port: int) -> Sniffed:
    """What this is. A client that says nothing is waiting for the server to speak, except where clients speak first."""
    ends_s = time.monotonic() + limits.EGRESS_HANDSHAKE_S_MAX  # what has begun to speak must come to an end
    sniffed = sniff(inside.first)
    for _ in range(limits.EGRESS_LOOKS_MAX):
        waits = sniffed.strange or not (inside.first or port in _WEB_PORTS)
        left_s = min(limits.EGRESS_QUIET_S if waits else math.inf, ends_s - time.monotonic())
        if sniffed.kind is not Kind.MORE or left_s <= 0 or not await inside.read_first(left_s):
            break
        sniffed = sniff(inside.first)
    if sniffed.kind is Kind.HTTP:
        await _whole_head(inside)
    return sniffed


async def _speaks_first(inside: Plain, outside: Plain) -> bool:
    """Wait for the first word of either; whether it is the client's. An end is no word."""
    async with anyio.create_task_group() as tasks:

        async def hear(side: Plain) -> None:
            with contextlib.suppress(OSError):  # whoever passes bytes on will see it, too
                await side.read_first()
            tasks.cancel_scope.cancel()

        tasks.cancel_scope.deadline = anyio.current_time() + limits.EGRESS_IDLE_S_MAX
        tasks.start_soon(hear, inside)
        tasks.start_soon(hear, outside)
    return bool(inside.first) and not outside.first


async def _whole_head(inside: Plain) -> None:
    seen = 0  # but for the last bytes, so that a head that trickles in is not searched again and again
    with anyio.move_on_after(limits.EGRESS_HANDSHAKE_S_MAX):
        while inside.first.find(b"\r\n\r\n", seen) < 0 and inside.first.find(b"\n\n", seen) < 0:
            seen = max(0, len(inside.first) - 3)
            if len(inside.first) >= limits.HTTP_HEAD_BYTES_MAX or not await inside.read_first():
                return


def _host_in(head: bytes, kind: Kind) -> str:
    """The name in a request's Host; the engine that serves the connection checks it again, strictly."""
    return http1.host_of(head) if kind is Kind.HTTP else ""


async def _dial(address: IPv4Address, port: int) -> Plain:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        place = (str(address), port)
        # A server on this machine has answered before the first call is back; the second sees it, and nobody waits.
        code = sock.connect_ex(place) and sock.connect_ex(place)
        if code in (errno.EINPROGRESS, errno.EALREADY):
            with anyio.fail_after(limits.EGRESS_CONNECT_S_MAX):
                await asyncio.get_running_loop().sock_connect(sock, place)
        elif code:
            raise OSError(code, os.strerror(code))
    except BaseException:
        sock.close()
        raise
    return Plain(sock)


async def _drained(inside: Channel) -> None:
    """Let a client read our answer before the connection goes: a reset would take it away."""
    with anyio.move_on_after(1.0), contextlib.suppress(OSError):
        left = limits.EGRESS_CHUNK_BYTES
        while left > 0 and (data := await inside.receive()):
            left -= len(data)


def _words(error: Exception) -> str:
    text = getattr(error, "strerror", None) or type(error).__name__
    return str(text).lower()[:80]
