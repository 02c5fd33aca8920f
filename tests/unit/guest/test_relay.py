"""Bytes both ways between two connections, as they are, until both have ended."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable

from atoll.guest.relay import join


def joined() -> tuple[socket.socket, socket.socket, threading.Thread]:
    """Two ends that are joined in the middle, and the thread that joins them."""
    caller, left = socket.socketpair()
    right, server = socket.socketpair()
    for end in (caller, server):
        end.settimeout(10)

    def run() -> None:
        with left, right:
            join(left, right)

    thread = threading.Thread(target=run)
    thread.start()
    return caller, server, thread


def read_all(end: socket.socket) -> bytes:
    data = b""
    while part := end.recv(65536):
        data += part
    return data


def test_both_directions_and_the_end_of_one() -> None:
    caller, server, thread = joined()
    with caller, server:
        caller.sendall(b"question")
        assert server.recv(100) == b"question"
        caller.shutdown(socket.SHUT_WR)
        assert server.recv(100) == b""
        server.sendall(b"answer")
        server.shutdown(socket.SHUT_WR)
        assert read_all(caller) == b"answer"
    thread.join(10)
    assert not thread.is_alive()


def test_a_reader_that_waits_loses_nothing() -> None:
    caller, server, thread = joined()
    data = os.urandom(3_000_000)

    def speak() -> None:
        server.sendall(data)
        server.shutdown(socket.SHUT_WR)

    speaker = threading.Thread(target=speak)
    with caller, server:
        speaker.start()
        assert read_all(caller) == data
        speaker.join(10)
        caller.shutdown(socket.SHUT_WR)
        thread.join(10)
    assert not thread.is_alive()


def test_a_side_that_breaks_ends_it() -> None:
    caller, server, thread = joined()
    caller.close()
    server.close()
    thread.join(10)
    assert not thread.is_alive()


def test_among_very_many_descriptors(high: Callable[[int], int]) -> None:
    caller, left = socket.socketpair()
    right, server = socket.socketpair()
    with socket.socket(fileno=high(left.detach())) as left, socket.socket(fileno=high(right.detach())) as right:
        caller.sendall(b"question")
        server.sendall(b"answer")
        caller.shutdown(socket.SHUT_WR)
        server.shutdown(socket.SHUT_WR)
        join(left, right)
    with caller, server:
        assert (read_all(caller), read_all(server)) == (b"answer", b"question")
