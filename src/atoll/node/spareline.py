"""A connection to a guest that is begun before anybody needs it: inside, to take one in costs as much as to answer."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable

import anyio

from atoll.model import limits

Begin = Callable[[], socket.socket]  # a connection on its way, not blocking


class SpareLine:
    def __init__(self, begin: Begin | None) -> None:
        self._begin = begin
        self._socket: socket.socket | None = None

    async def take(self) -> socket.socket | None:
        """The connection that waits, if it is one still; one that is almost there is waited for."""
        connection, self._socket = self._socket, None
        if connection is None:
            return None
        try:
            if await _has_arrived(connection) and _is_usable(connection):
                return connection
        except BaseException:
            connection.close()
            raise
        connection.close()
        return None

    def renew(self) -> None:
        """Have one for the next caller, soon."""
        if self._socket is None and self._begin is not None:
            # Whoever needs a connection and finds none makes it, and says what is wrong with the guest.
            with contextlib.suppress(OSError):
                self._socket = self._begin()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


async def _has_arrived(connection: socket.socket) -> bool:
    with anyio.move_on_after(limits.SPARE_ARRIVES_S):
        try:
            connection.getpeername()
        except OSError:
            await anyio.wait_writable(connection)
        return True
    return False


def _is_usable(connection: socket.socket) -> bool:
    """A guest says nothing before it is asked: what can be read is the end, or a protocol that is not ours."""
    try:
        connection.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    except OSError:  # not connected yet, or no more
        return False
    return False
