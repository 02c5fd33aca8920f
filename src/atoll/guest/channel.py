"""A blocking connection that speaks frames, in exact reads: it can change hands between two frames."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from typing import Any

from atoll.guest.failure import Disconnected, Refused, refusal
from atoll.model import limits
from atoll.wire import framing
from atoll.wire import guest as wire


class Channel:
    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        connection.settimeout(limits.TRANSFER_STALL_S_MAX)

    def read_request(self, *, patient: bool) -> dict[str, Any]:
        """The first frame: soon, or for as long as it takes to come."""
        self.socket.settimeout(None if patient else limits.FIRST_FRAME_S_MAX)
        try:
            # A request comes in one piece, as a rule. To look at it first costs fewer calls than two exact reads.
            seen = self.socket.recv(limits.REQUEST_LOOK_BYTES, socket.MSG_PEEK)
        except OSError as error:
            raise Disconnected(str(error)) from error
        if len(seen) > framing.HEADER.size:
            length, kind = framing.HEADER.unpack_from(seen)
            end = framing.HEADER.size + length
            if kind == framing.CONTROL and end <= len(seen):
                return parse(framing.Frame(kind, self.read_exactly(end)[framing.HEADER.size :]))
        self.socket.settimeout(limits.FIRST_FRAME_S_MAX)
        return self.read_control()

    def read_frame(self) -> framing.Frame:
        length, kind = self.read_head()
        return framing.Frame(kind, self.read_exactly(length))

    def read_head(self) -> tuple[int, int]:
        """Of the next frame: how many bytes follow, and of which kind they are."""
        length, kind = framing.HEADER.unpack(self.read_exactly(framing.HEADER.size))
        if length > limits.FRAME_BYTES_MAX:
            raise Disconnected(f"a frame of {length} bytes")
        return length, kind

    def read_exactly(self, count: int) -> bytes:
        buffer = bytearray(count)
        with memoryview(buffer) as view:
            got = 0
            while got < count:
                got += self.receive(view[got:])
        return bytes(buffer)

    def receive(self, view: memoryview) -> int:
        try:
            got = self.socket.recv_into(view)
        except OSError as error:
            raise Disconnected(str(error)) from error
        if got == 0:
            raise Disconnected("end of stream")
        return got

    def read_control(self) -> dict[str, Any]:
        frame = self.read_frame()
        if frame.kind != framing.CONTROL:
            raise Refused("invalid_argument", "a control frame was expected")
        return parse(frame)

    def read_upload(self) -> Upload:
        return Upload(self)

    def send_data(self, kind: int, payload: bytes | bytearray | memoryview) -> None:
        self._send(framing.header(kind, len(payload)), payload)

    def send_ok(self, value: dict[str, Any]) -> None:
        self._send(wire.control({"ok": value}))

    def send_event(self, kind: str, value: dict[str, Any]) -> None:
        self._send(wire.control({"event": {"type": kind, **value}}))

    def send_end(self, value: dict[str, Any]) -> None:
        self._send(wire.control({"end": value}))

    def send_error(self, error: BaseException) -> None:
        reason = refusal(error)
        self._send(wire.control({"error": {"code": reason.code, "message": reason.message}}))

    def _send(self, *parts: bytes | bytearray | memoryview) -> None:
        try:
            sent = self.socket.sendmsg(parts)
            for part in parts:
                if sent >= len(part):
                    sent -= len(part)
                    continue
                self.socket.sendall(memoryview(part)[sent:])
                sent = 0
        except OSError as error:
            raise Disconnected(str(error)) from error

    def discard_input(self) -> None:
        """After an error in the middle of an upload: let the client's last bytes in, so that it reads the reason."""
        try:
            self.socket.shutdown(socket.SHUT_WR)
            self.socket.settimeout(1.0)
            for _ in range(256):
                if not self.socket.recv(limits.FRAME_BYTES_MAX):
                    return
        except OSError:
            return

    def detach(self) -> socket.socket:
        """The connection, for somebody else to go on with; this end of it is closed then."""
        old = self.socket
        return socket.socket(old.family, old.type, old.proto, fileno=old.detach())  # else it asks the kernel for each

    def close(self) -> None:
        self.socket.close()


SENDING = frozenset({Channel._send.__code__})
"""What must not be left in the middle by a signal."""


class Upload:
    """The bytes of one upload, until the client commits to it. Leaving early, for any reason, means: no commit."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._left = 0  # of the frame that is being read
        self._committed = False

    def read_into(self, view: memoryview) -> int:
        """What has arrived, as far as there is room; it is dealt with while the rest is on its way. 0 at the end."""
        while not self._left:
            if self._committed:
                return 0
            self._begin_frame()
        got = self._channel.receive(view[: self._left])
        self._left -= got
        return got

    def __iter__(self) -> Iterator[memoryview]:
        """Each is valid until the next one is asked for: it is all one buffer."""
        with memoryview(bytearray(limits.FRAME_BYTES_MAX)) as buffer:
            while got := self.read_into(buffer):
                yield buffer[:got]

    def decline(self) -> None:
        """The node's offer to write the bytes itself: they are to be sent."""
        self._channel.send_event("incoming", {})

    def wait_placed(self, owner: dict[str, int]) -> str | None:
        """Take the offer, for a file of this owner; its name when it is whole, None if the bytes are sent after all."""
        self._channel.send_event("incoming", owner)
        while True:
            length, kind = self._channel.read_head()
            if kind == framing.INPUT:
                self._left = length
                return None
            control = parse(framing.Frame(kind, self._channel.read_exactly(length)))
            match control.get("do"):
                case "going_on":  # the node has not forgotten us
                    continue
                case "failed":
                    number = int(control["errno"])
                    raise OSError(number, os.strerror(number))
                case "placed":
                    return str(control["name"])
                case "commit":
                    self._committed = True
                    return None
            raise Refused("invalid_argument", "an upload that is placed ends with a word about that")

    def _begin_frame(self) -> None:
        length, kind = self._channel.read_head()
        if kind == framing.INPUT:
            self._left = length
            return
        frame = framing.Frame(kind, self._channel.read_exactly(length))
        if kind != framing.CONTROL or parse(frame).get("do") != "commit":
            raise Refused("invalid_argument", "an upload is INPUT frames and then a commit")
        self._committed = True


def parse(frame: framing.Frame) -> dict[str, Any]:
    try:
        return wire.parse_control(frame.payload)
    except wire.MessageError as error:
        raise Refused("invalid_argument", str(error)) from error
