"""The node's word that it looks: it holds while its line is open and not silent, and not a moment longer."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator

import pytest

from atoll.guest.lease import Lease
from atoll.guest.pump import Pump
from atoll.model import limits
from atoll.wire import guest as wire
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
    """A line on which the guard was told to rest."""
    ours, theirs = socket.socketpair()
    ours.settimeout(5)
    lease.take(theirs)
    with ours:
        ours.send(wire.LINE_REST)
        assert int(ours.recv(64)) > 1
        yield ours


def test_a_line_alone_is_no_word(lease: Lease, ended: threading.Event) -> None:
    ours, theirs = socket.socketpair()
    lease.take(theirs)
    with ours:
        ours.send(wire.LINE_LOOK)
        assert ours.recv(64)
        assert not lease.left_s()
    assert not ended.is_set(), "nothing has ended"


def test_it_ends_with_its_connection(lease: Lease, node: socket.socket, ended: threading.Event) -> None:
    assert lease.left_s() > limits.MEMORY_LEASE_S - 5
    node.close()
    assert ended.wait(5)
    assert lease.left_s() == 0.0


def test_it_ends_with_a_word(lease: Lease, node: socket.socket, ended: threading.Event) -> None:
    node.send(wire.LINE_LOOK)
    assert node.recv(64)
    assert ended.is_set()
    assert lease.left_s() == 0.0
    node.send(wire.LINE_REST)
    assert node.recv(64)
    assert lease.left_s()


def test_each_word_makes_it_longer_and_is_answered_with_the_number_of_processes(
    lease: Lease, node: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MEMORY_LEASE_S", 1000.0)
    monkeypatch.setattr(os, "listdir", lambda _path: ["1", "27", "self", "meminfo", "4000"])
    node.send(wire.LINE_REST)
    assert node.recv(64) == b"3\n"
    assert lease.left_s() > 900


def test_a_server_that_is_stuck_loses_it(
    lease: Lease, node: socket.socket, ended: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MEMORY_LEASE_S", 0.05)
    node.send(wire.LINE_REST)
    assert node.recv(64)
    wait_until(lambda: not lease.left_s(), 5, "nothing was said for too long")
    assert not ended.is_set(), "the connection is open still"


def test_the_next_one_takes_its_place(lease: Lease, node: socket.socket, ended: threading.Event) -> None:
    ours, theirs = socket.socketpair()
    lease.take(theirs)
    with ours:
        assert node.recv(64) == b"", "the one before is closed"
        assert ended.wait(5), "with what was said on it"
        ours.send(wire.LINE_REST)
        assert ours.recv(64)
        assert lease.left_s()
