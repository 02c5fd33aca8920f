"""Messages with file descriptors between the guest's own processes, over a unix stream socket."""

from __future__ import annotations

import array
import os
import socket
from collections.abc import Sequence
from typing import Any

from atoll.guest.failure import Disconnected
from atoll.model import limits
from atoll.wire import framing
from atoll.wire import guest as wire

_FDS_MAX = 4


def send(connection: socket.socket, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
    data = wire.control(message)
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    try:
        sent = connection.sendmsg([data], ancillary)
        if sent < len(data):
            connection.sendall(data[sent:])
    except OSError as error:
        raise Disconnected(str(error)) from error


def receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """The next message. The header is read alone, so descriptors can never be taken for those of another message."""
    try:
        size = socket.CMSG_SPACE(_FDS_MAX * 4)
        head, ancillary, _, _ = connection.recvmsg(framing.HEADER.size, size, socket.MSG_CMSG_CLOEXEC)
        fds = _descriptors(ancillary)
        try:
            head += _exactly(connection, framing.HEADER.size - len(head)) if head else b""
            if not head:
                raise Disconnected("end of stream")
            length, _ = framing.HEADER.unpack(head)
            if length > limits.FRAME_BYTES_MAX:
                raise Disconnected("a message over the bound")
            return wire.parse_control(_exactly(connection, length)), fds
        except (Disconnected, wire.MessageError):
            for fd in fds:
                os.close(fd)
            raise
    except (OSError, wire.MessageError) as error:
        raise Disconnected(str(error)) from error


def receive_some(connection: socket.socket) -> bytes:
    """What has come of messages that hold no descriptors, in one call; those that come all the same are closed."""
    try:
        size = socket.CMSG_SPACE(_FDS_MAX * 4)
        flags = socket.MSG_CMSG_CLOEXEC | socket.MSG_DONTWAIT
        data, ancillary, _, _ = connection.recvmsg(limits.REQUEST_LOOK_BYTES, size, flags)
    except BlockingIOError as error:
        raise Disconnected("nothing was there to read") from error
    except OSError as error:
        raise Disconnected(str(error)) from error
    for fd in _descriptors(ancillary):
        os.close(fd)
    if not data:
        raise Disconnected("end of stream")
    return data


def _descriptors(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    fds = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    return list(fds)


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise Disconnected("end of stream")
        data += part
    return bytes(data)
