"""The node's word that it looks: it holds while its connection is open and not silent, and not a moment longer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from atoll.guest.lease import Lease
from atoll.guest.pump import Pump
from atoll.model import limits
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def pump() -> Pump:
    pump = Pump()
    pump.start()
    return pump


@pytest.fixture
def ended() -> threading.Event:
    return threading.Event()


@pytest.fixture
def lease(pump: Pump, ended: threading.Event) -> Lease:
    return Lease(pump, ended.set)


@pytest.fixture
def node(lease: Lease) -> Iterator[socket.socket]:
    ours, theirs = socket.socketpair()
    ours.settimeout(5)
    lease.take(theirs)
    with ours:
        wait_until(lease.left_s, 5, "it holds")
        yield ours


def test_it_ends_with_its_connection(lease: Lease, node: socket.socket, ended: threading.Event) -> None:
    assert lease.left_s() > limits.MEMORY_LEASE_S - 5
    node.close()
    assert ended.wait(5)
    assert lease.left_s() == 0.0


def test_each_sign_is_answered_and_makes_it_longer(
    lease: Lease, node: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MEMORY_LEASE_S", 1000.0)
    node.send(b".")
    assert node.recv(64) == b"."
    wait_until(lambda: lease.left_s() > 900, 5, "it holds for longer")


def test_a_server_that_is_stuck_loses_it(
    lease: Lease, node: socket.socket, ended: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MEMORY_LEASE_S", 0.05)
    node.send(b".")
    assert node.recv(64) == b"."
    wait_until(lambda: not lease.left_s(), 5, "nothing was said for too long")
    assert not ended.is_set(), "the connection is open still"


def test_the_next_one_takes_its_place(lease: Lease, node: socket.socket) -> None:
    ours, theirs = socket.socketpair()
    lease.take(theirs)
    with ours:
        assert node.recv(64) == b"", "the one before is closed"
        wait_until(lease.left_s, 5, "the new one holds")
