"""All gates of a node: what is said of a sandbox that has none because it sleeps."""

from __future__ import annotations

import socket
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from atoll.model.errors import NotFound
from atoll.model.policy import Mode, Policy, compile_policy
from atoll.model.secret import Grant, Hidden, Secret
from atoll.node.egress.egress import Egress
from atoll.node.egress.gate import Flow
from atoll.node.egress.keepsakes import Keepsakes
from atoll.node.network.netns import Network
from atoll.wire.network import NetworkOrder, Trial

pytestmark = pytest.mark.anyio

PUBLIC = "9.9.9.9"  # judged and never dialled


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_sandbox_that_sleeps_is_judged_by_its_order_and_by_what_it_has_moved(tmp_path: Path) -> None:
    kept = Keepsakes(tmp_path)
    kept.traffic("sb1").add(up=5, down=7)
    egress = Egress(folder=tmp_path)
    egress.set("sb1", NetworkOrder(compile_policy(Policy(allow=(f"{PUBLIC}:80",)), {})))
    status = egress.status("sb1", 0)
    assert (status.bytes_up, status.bytes_down, status.connections_open, status.asks) == (5, 7, 0, ())
    assert (await egress.test("sb1", Trial(PUBLIC, 80))).allowed
    refused = await egress.test("sb1", Trial("a.test", 80))
    assert (refused.allowed, refused.reason) == (False, "not_listed")
    with pytest.raises(NotFound) as caught:
        egress.answer("sb1", "q1", True)
    assert caught.value.code == "ask_not_found"
    egress.forget("sb1")
    kept.forget("sb1")


@pytest.mark.parametrize(
    ("bounds", "reason"),
    [
        ({"bytes_max": 12}, "bytes_cap"),
        ({"bytes_max": 13}, "allowed"),
        ({"connections_max": 1}, "allowed"),
        ({"mode": Mode.NOTHING}, "network_off"),
    ],
)
async def test_a_trial_knows_what_refuses_every_connection(tmp_path: Path, bounds: dict[str, Any], reason: str) -> None:
    Keepsakes(tmp_path).traffic("sb1").add(up=5, down=7)
    egress = Egress(folder=tmp_path)
    egress.set("sb1", NetworkOrder(compile_policy(Policy(allow=(f"{PUBLIC}:80",), **bounds), {})))
    tested = await egress.test("sb1", Trial(PUBLIC, 80))
    assert (tested.allowed, tested.reason) == (reason == "allowed", reason)


async def test_a_trial_knows_that_there_are_as_many_connections_as_there_may_be() -> None:
    egress = Egress()
    async with anyio.create_task_group() as tasks:
        egress.start(tasks)
        egress.set("sb1", NetworkOrder(compile_policy(Policy(allow=(f"{PUBLIC}:80",), connections_max=1), {})))
        await egress.open("sb1", cast(Network, _Here()))
        assert egress.status("sb1", 0).packets_dropped == 3
        gate = egress._gate("sb1")
        flow = Flow(IPv4Address(PUBLIC), 80, anyio.CancelScope(), 0.0)
        gate.opened(flow)
        assert (await egress.test("sb1", Trial(PUBLIC, 80))).reason == "connections_max"
        gate.ended(flow)
        assert (await egress.test("sb1", Trial(PUBLIC, 80))).allowed
        await egress.close("sb1")


class _Here:
    """A network whose sockets are this machine's own."""

    def listen_tcp(self, _port: int) -> socket.socket:
        return socket.create_server(("127.0.0.1", 0))

    def packets_dropped(self) -> int:
        return 3

    def listen_udp(self, _port: int) -> socket.socket:
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind(("127.0.0.1", 0))
        return sock


async def test_values_that_a_sandbox_had_are_covered_until_it_is_gone() -> None:
    """Rotation and removal take none away; an order that changes no value gives the same object, for a cheap look."""
    egress = Egress()
    egress.set("sb1", NetworkOrder(grants=(grant("canary-first"),)))
    egress.set("sb1", NetworkOrder(grants=(grant("canary-second"),)))
    values = egress.values("sb1")
    assert values == (b"canary-second", b"canary-first")
    egress.set("sb1", NetworkOrder())
    assert egress.values("sb1") is values
    egress.forget("sb1")
    assert egress.values("sb1") == ()


def grant(value: str) -> Grant:
    secret = Secret("TOKEN", ("a.test",)).checked()
    return Grant(secret, secret.rules(), "atoll-secret-" + "0" * 32, Hidden(value))
