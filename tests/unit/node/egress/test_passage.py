"""Two sockets, joined: what passes, what waits, and what ends it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Any

import anyio
import pytest

from atoll.model import limits
from atoll.model.policy import Policy, compile_policy
from atoll.node.egress.buffer import Buffer, Waiting
from atoll.node.egress.channel import Plain
from atoll.node.egress.gate import Flow, Gate
from atoll.node.egress.passage import Passage, ended_when_idle
from atoll.wire.network import NetworkOrder

pytestmark = pytest.mark.anyio

ADDRESS = IPv4Address("198.51.100.7")


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": request.param}


@dataclass
class Stage:
    """The far ends of both sockets, and what is between."""

    gate: Gate
    flow: Flow
    client: socket.socket
    server: socket.socket
    passage: Passage
    ended: asyncio.Event
    errors: list[Exception]

    async def say(self, who: socket.socket, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(who, data)

    async def hear(self, who: socket.socket, size: int) -> bytes:
        data = b""
        async with asyncio.timeout(10):
            while len(data) < size and (part := await asyncio.get_running_loop().sock_recv(who, size - len(data))):
                data += part
        return data


def new_buffer() -> Buffer:
    return Buffer(memoryview(bytearray(limits.EGRESS_CHUNK_BYTES)), Waiting())


@contextlib.asynccontextmanager
async def joined(
    buffer: Buffer | None = None, look: Callable[[bytes], bool] | None = None, first: bytes = b"", **policy: Any
) -> AsyncIterator[Stage]:
    client, inside = socket.socketpair()
    outside, server = socket.socketpair()
    for sock in (client, inside, outside, server):
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
    gate = Gate("sb1", lambda *_: None)
    gate.apply(NetworkOrder(compile_policy(Policy(allow=(str(ADDRESS),), **policy), {})))
    flow = Flow(ADDRESS, 443, anyio.CancelScope(), time.monotonic())
    gate.opened(flow)
    near, far = Plain(inside), Plain(outside)
    near.first = first
    passage = Passage(gate, flow, near, far, buffer or new_buffer())
    stage = Stage(gate, flow, client, server, passage, asyncio.Event(), [])

    async def run() -> None:
        try:
            with flow.scope:
                await stage.passage.run(look)
        except Exception as error:
            stage.errors.append(error)
        finally:
            near.close()
            far.close()
            stage.ended.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await asyncio.sleep(0)
        yield stage
        tasks.cancel_scope.cancel()
    client.close()
    server.close()


async def ends(stage: Stage) -> None:
    async with asyncio.timeout(5):
        await stage.ended.wait()


async def test_bytes_pass_both_ways_and_are_counted() -> None:
    async with joined(first=b"hello") as stage:
        await stage.say(stage.client, b" server")
        assert await stage.hear(stage.server, 12) == b"hello server"
        await stage.say(stage.server, b"good day")
        assert await stage.hear(stage.client, 8) == b"good day"
        assert (stage.flow.bytes_up, stage.flow.bytes_down) == (12, 8)


async def test_one_end_may_be_silent_and_still_hear_all() -> None:
    async with joined() as stage:
        await stage.say(stage.client, b"that is all")
        stage.client.shutdown(socket.SHUT_WR)
        assert await stage.hear(stage.server, 100) == b"that is all"
        assert not stage.ended.is_set()
        await stage.say(stage.server, b"and this is the answer")
        stage.server.shutdown(socket.SHUT_WR)
        assert await stage.hear(stage.client, 100) == b"and this is the answer"
        await ends(stage)


async def test_nothing_is_read_for_an_end_that_does_not_read() -> None:
    async with joined() as stage:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await stage.say(stage.client, bytes(32 * limits.MIB))
        assert stage.flow.bytes_up < 4 * limits.MIB  # what kernels hold, and one chunk
        await stage.say(stage.server, b"still there")
        assert await stage.hear(stage.client, 11) == b"still there"


async def test_what_waits_is_not_touched_by_others_who_use_the_buffer() -> None:
    buffer = new_buffer()
    size = 8 * limits.MIB
    async with joined(buffer) as slow, joined(buffer) as quick:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(slow.say, slow.client, b"a" * size)
            await asyncio.sleep(0.05)  # by now it is stuck
            for _ in range(50):
                await quick.say(quick.client, b"b" * 50_000)
                assert await quick.hear(quick.server, 50_000) == b"b" * 50_000
            assert (await slow.hear(slow.server, size)).count(b"a") == size


async def test_many_that_do_not_read_hold_little_in_sum_and_stop_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of one sandbox and of another: what waits has one bound for each and one for all."""
    own_max, total_max, least = 256 * limits.KIB, 384 * limits.KIB, limits.KIB
    monkeypatch.setattr(limits, "EGRESS_WAITING_BYTES_MAX", own_max)
    monkeypatch.setattr(limits, "EGRESS_WAITING_TOTAL_BYTES_MAX", total_max)
    monkeypatch.setattr(limits, "EGRESS_PIECE_BYTES_MIN", least)
    waiting, view = Waiting(), memoryview(bytearray(limits.EGRESS_CHUNK_BYTES))
    one, other = Buffer(view, waiting), Buffer(view, waiting)
    whole_piece = len(one.piece())
    slow = 40  # of each
    async with contextlib.AsyncExitStack() as stack:
        stages = [await stack.enter_async_context(joined(buffer)) for buffer in (one, other) for _ in range(slow)]
        for _ in range(200):
            for stage in stages:
                with contextlib.suppress(BlockingIOError):
                    stage.client.send(bytes(64 * limits.KIB))
            await asyncio.sleep(0)
        assert waiting.size_bytes > total_max / 2, "the control: they do not read"
        assert waiting.size_bytes <= total_max + 2 * slow * least
        assert one.waiting_bytes <= own_max + slow * least
        assert len(one.piece()) < whole_piece
        for buffer in (one, other):
            quick = await stack.enter_async_context(joined(buffer))
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(quick.say, quick.client, b"q" * 500_000)
                assert len(await quick.hear(quick.server, 500_000)) == 500_000
        size = stages[0].flow.bytes_up
        assert len(await stages[0].hear(stages[0].server, size)) == size, "nothing of what waited is lost"
    assert waiting.size_bytes == 0
    assert len(one.piece()) == whole_piece


async def test_the_bytes_that_reach_a_cap_do_not_pass() -> None:
    async with joined(bytes_max=10) as stage:
        await stage.say(stage.client, b"12345")
        assert await stage.hear(stage.server, 5) == b"12345"
        await stage.say(stage.client, b"67890")
        await ends(stage)
        assert stage.flow.cut_reason == "bytes_cap"
        assert await stage.hear(stage.server, 1) == b""


async def test_a_rate_is_waited_for() -> None:
    async with joined(rate_bytes_per_s=100_000) as stage:
        began_s = time.monotonic()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stage.say, stage.client, b"x" * 150_000)
            assert len(await stage.hear(stage.server, 150_000)) == 150_000
        assert 0.3 < time.monotonic() - began_s < 5  # a second's worth at once, and then the rest of it


def rated(stage: Stage, rate_bytes_per_s: int | None) -> None:
    rules = compile_policy(Policy(allow=(str(ADDRESS),), rate_bytes_per_s=rate_bytes_per_s), {})
    stage.gate.apply(NetworkOrder(rules))


@pytest.mark.parametrize("raised", [None, 50_000_000])
async def test_a_raised_rate_holds_at_once_also_for_what_rests(raised: int | None) -> None:
    """By the lower one it would take a minute, and whoever comes next would wait for that minute, too."""
    async with joined(rate_bytes_per_s=1024) as stage:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stage.say, stage.client, b"x" * 65_536)
            assert len(await stage.hear(stage.server, 1024)) == 1024
            await asyncio.sleep(0.05)
            assert stage.gate.rate.resting, "the control: it waits"
            rated(stage, 1024)
            assert stage.gate.rate.resting, "the same rate is no other one"
            rated(stage, raised)
            assert len(await stage.hear(stage.server, 64_512)) == 64_512
        assert not stage.gate.rate.resting
        assert stage.gate.count(stage.flow, up=1000) == 0


async def test_what_rested_on_a_connection_that_ended_is_owed_by_nobody() -> None:
    async with joined(rate_bytes_per_s=10_000) as stage:
        await stage.say(stage.client, b"x" * 10_000)
        await stage.say(stage.client, b"x" * 50_000)
        async with asyncio.timeout(5):
            while not stage.gate.rate.resting:
                await asyncio.sleep(0.001)
        before_s = stage.gate.rate.take(0)
        assert before_s > 0
        stage.flow.scope.cancel()
        await ends(stage)
        assert stage.gate.rate.take(0) < before_s - 0.9
        assert not stage.gate.rate.resting


async def test_a_cut_takes_effect_before_the_next_byte() -> None:
    async with joined() as stage:
        await stage.say(stage.client, b"before")
        assert await stage.hear(stage.server, 6) == b"before"
        stage.client.send(b"after")  # it is there to be read, and then the rules change
        stage.gate.apply(NetworkOrder())
        await ends(stage)
        assert stage.flow.cut_reason == "policy_changed"
        assert await stage.hear(stage.server, 1) == b""


async def test_first_bytes_that_are_objected_to_do_not_pass() -> None:
    async with joined(look=lambda data: data != b"bad") as stage:
        await stage.say(stage.client, b"bad")
        await ends(stage)
        assert stage.flow.cut_reason == "late_hello"
        assert await stage.hear(stage.server, 1) == b""
    async with joined(look=lambda data: data != b"bad") as stage:
        await stage.say(stage.client, b"fine")
        assert await stage.hear(stage.server, 4) == b"fine"
        await stage.say(stage.client, b"bad")  # nobody looks any more
        assert await stage.hear(stage.server, 3) == b"bad"


async def test_an_end_that_is_gone_ends_it() -> None:
    async with joined() as stage:
        stage.server.close()
        with contextlib.suppress(OSError):
            await stage.say(stage.client, b"anybody?")
        stage.client.close()
        await ends(stage)
        assert not stage.errors


async def test_a_bug_is_raised_where_the_connection_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    async with joined() as stage:

        def broken(*_: object, **__: object) -> float:
            raise ZeroDivisionError

        monkeypatch.setattr(stage.gate, "count", broken)
        await stage.say(stage.client, b"x")
        await ends(stage)
        assert [type(error) for error in stage.errors] == [ZeroDivisionError]
        assert await stage.hear(stage.server, 1) == b""


async def test_what_is_looked_into_ends_too_when_nothing_moves_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """An upload of an hour is silent in the other direction, and must not be cut for that."""
    monkeypatch.setattr(limits, "EGRESS_IDLE_S_MAX", 0.2)
    moves = 0
    async with asyncio.timeout(5):
        with ended_when_idle() as idleness:
            for _ in range(4):
                await asyncio.sleep(0.1)
                idleness.moved()
                moves += 1
            await asyncio.Event().wait()
    assert moves == 4


async def test_a_connection_on_which_nothing_moves_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "EGRESS_IDLE_S_MAX", 0.3)
    async with joined() as stage:
        for _ in range(4):
            await asyncio.sleep(0.15)
            await stage.say(stage.client, b"x")
        assert not stage.ended.is_set()
        await ends(stage)
