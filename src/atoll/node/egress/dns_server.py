"""The DNS server of one sandbox: answers for names that its policy knows, and asks nobody about the others.

Whatever server a program inside addresses, its question ends here. Questions beyond a rate are dropped, as a network
drops them, and are not even read before the next second: a flood of them costs the server next to nothing. Each answer
is built anew, so nothing but addresses comes in this way, and nothing but names goes out. A question that is not
refused counts with its answer as bytes of the sandbox; one whose bytes are spent is told nothing more.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time

import anyio
from anyio.abc import TaskGroup

from atoll.model import limits
from atoll.model.errors import InvalidArgument
from atoll.model.policy import normal_name
from atoll.node.egress.channel import Plain
from atoll.node.egress.dns_message import (
    CLASS_IN,
    NO_ERROR,
    NO_SUCH_NAME,
    REFUSED,
    SERVER_FAILED,
    TYPE_A,
    DnsError,
    Question,
    build_answer,
    parse_question,
)
from atoll.node.egress.gate import Gate
from atoll.node.egress.judge import Bench

DNS_PORT = 53
_BATCH = 32  # questions taken in one go; then others get their turn
_WAITING_MAX = 512  # datagrams dropped in one go: twice what the kernel keeps of one socket


class DnsServer:
    """Answers one sandbox."""

    def __init__(self, gate: Gate, bench: Bench) -> None:
        self._gate = gate
        self._bench = bench
        self._open = 0
        self._second = 0
        self._in_second = 0
        self._connections = 0

    async def run(self, sock: socket.socket) -> None:
        """Answer datagrams until cancelled."""
        loop = asyncio.get_running_loop()
        async with anyio.create_task_group() as tasks:
            while True:
                spent = anyio.Event()
                loop.add_reader(sock.fileno(), self._take, sock, tasks, spent)
                try:
                    await spent.wait()
                finally:
                    loop.remove_reader(sock.fileno())
                await anyio.sleep(max(0.0, self._second + 1 - time.monotonic()))
                _drop_waiting(sock)

    def _take(self, sock: socket.socket, tasks: TaskGroup, spent: anyio.Event) -> None:
        for _ in range(_BATCH):
            try:
                message, sender = sock.recvfrom(limits.DNS_ANSWER_BYTES_MAX)
            except OSError:
                return
            if self._may_ask():
                tasks.start_soon(self._answer_datagram, sock, message, sender)
            elif self._in_second > limits.DNS_QUERIES_PER_S:
                asyncio.get_running_loop().remove_reader(sock.fileno())
                spent.set()
                return

    def _may_ask(self) -> bool:
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._in_second = second, 0
        self._in_second += 1
        return self._in_second <= limits.DNS_QUERIES_PER_S and self._open < limits.DNS_QUERIES_OPEN_MAX

    async def _answer_datagram(self, sock: socket.socket, message: bytes, sender: tuple[str, int]) -> None:
        answer = await self._answer(message)
        if answer:
            with contextlib.suppress(OSError):
                sock.sendto(answer, sender)

    def take_tcp(self, inside: Plain, tasks: TaskGroup) -> None:
        """A connection with questions. Programs ask this way for long answers only: a few at a time are enough."""
        if self._connections >= limits.DNS_CONNECTIONS_MAX:
            inside.reset()
            return
        self._connections += 1
        tasks.start_soon(self._serve_tcp, inside)

    async def _serve_tcp(self, inside: Plain) -> None:
        """Questions over TCP, one after the other, each with its length before it."""
        try:
            with anyio.move_on_after(limits.EGRESS_HANDSHAKE_S_MAX), contextlib.suppress(OSError):
                data = b""
                while part := await inside.receive():
                    data += part
                    while len(data) >= 2 and len(data) >= 2 + (size := int.from_bytes(data[:2])):
                        answer = await self._answer(data[2 : 2 + size]) if self._may_ask() else b""
                        if not answer:
                            return
                        await inside.send(len(answer).to_bytes(2) + answer)
                        data = data[2 + size :]
                    if len(data) > 2 * limits.DNS_QUERY_BYTES_MAX:
                        return
        finally:
            self._connections -= 1
            inside.close()

    async def _answer(self, message: bytes) -> bytes:
        """The answer to a question; nothing to what is none."""
        try:
            question = parse_question(message)
        except DnsError:
            return b""
        self._open += 1
        try:
            return await self._answer_question(question, len(message))
        finally:
            self._open -= 1

    async def _answer_question(self, question: Question, question_bytes: int) -> bytes:
        try:
            name = normal_name(question.name)
        except InvalidArgument:
            return build_answer(question, NO_SUCH_NAME)
        if question.klass != CLASS_IN:
            return build_answer(question, REFUSED)
        if self._gate.over_cap():
            self._gate.note("lookup", name=name, reason="bytes_cap")
            return build_answer(question, REFUSED)
        code, addresses, ttl_s = await self._bench.lookup(self._gate, name)
        if code not in (NO_ERROR, NO_SUCH_NAME, REFUSED, SERVER_FAILED):
            code = SERVER_FAILED
        # Of a name that exists only addresses of IPv4 are told; for the rest it has nothing.
        answer = build_answer(question, code, addresses if question.kind == TYPE_A else (), ttl_s)
        if code != REFUSED:
            # Where a rate is set the next bytes of a connection wait for these: a client would not wait for an answer.
            self._gate.count_any(up=question_bytes, down=len(answer))
        return answer


def _drop_waiting(sock: socket.socket) -> None:
    """What came beyond the rate is forgotten, so that who asks next is not behind a flood."""
    with contextlib.suppress(OSError):
        for _ in range(_WAITING_MAX):
            sock.recv(1)
