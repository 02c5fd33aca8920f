"""A runner's end of its connection to the guest: frames out from any thread, requests in.

A frame is a 32-bit big-endian length, one byte of kind and the payload. This runs on whatever Python the template has,
so it shares no module with the guest and keeps to what every version knows.
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import threading
from typing import Any

CONTROL, STDOUT, STDERR, RESULT = 0, 1, 2, 4
RESULT_BYTES_MAX = 10 * 1024 * 1024  # the guest's bound; it takes nothing larger
TEXT_CHARS_MAX = 64 * 1024  # of an error's parts
_HEADER = struct.Struct(">IB")


class Link:
    def __init__(self) -> None:
        """Standard input is the connection; from now on programs find nothing there."""
        own_fd = os.dup(0)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        self._socket = socket.socket(fileno=own_fd)
        self._lock = threading.Lock()
        # Not in a child that user code forked: two writers would garble each other's frames.
        self.is_ours = True
        os.register_at_fork(after_in_child=self._let_go)

    def _let_go(self) -> None:
        self.is_ours = False

    def send(self, kind: int, payload: bytes) -> None:
        if self.is_ours:
            with self._lock:
                self._socket.sendall(_HEADER.pack(len(payload), kind) + payload)

    def send_control(self, **message: Any) -> None:
        self.send(CONTROL, json.dumps(message).encode("ascii"))

    def send_error(self, name: str, value: str, traceback: str) -> None:
        self.send_control(type="error", name=cut(name, 256), value=cut(value), traceback=cut(traceback))

    def send_done(self, count: int, exit_code: int) -> None:
        self.send_control(type="done", count=count, exit_code=exit_code)

    def send_result(self, data: dict[str, Any], *, main: bool, display_id: str = "", update: bool = False) -> None:
        """One result in all its forms; a form that is too large is replaced by words that say so."""
        forms: dict[str, Any] = {}
        size = 0
        for mime, value in sorted(data.items(), key=lambda item: item[0] != "text/plain"):
            encoded = encode(value)
            if encoded is None:
                continue
            if size + len(encoded) > RESULT_BYTES_MAX - TEXT_CHARS_MAX:
                cut_text = value[: TEXT_CHARS_MAX // 8] if mime == "text/plain" and isinstance(value, str) else ""
                note = f"[cut: {mime} of {len(encoded)} bytes is over the limit of {RESULT_BYTES_MAX} bytes]"
                forms["text/plain"] = (str(forms.get("text/plain", cut_text)) + "\n" + note).strip()
                continue
            size += len(encoded)
            forms[mime] = value
        body = {"data": forms, "main": main, "display_id": display_id, "update": update}
        self.send(RESULT, json.dumps(body, default=str).encode("ascii"))

    def has_more(self) -> bool:
        """Whether a request waits already."""
        return bool(select.select([self._socket], [], [], 0)[0])

    def receive(self) -> dict[str, Any] | None:
        """The next request; None when the guest is gone."""
        head = self._exactly(_HEADER.size)
        if head is None:
            return None
        length, _kind = _HEADER.unpack(head)
        body = self._exactly(length)
        return None if body is None else json.loads(body)

    def _exactly(self, count: int) -> bytes | None:
        data = bytearray()
        while len(data) < count:
            part = self._socket.recv(min(count - len(data), 1 << 20))
            if not part:
                return None
            data += part
        return bytes(data)


def encode(value: Any) -> bytes | None:
    try:
        return json.dumps(value, default=str).encode("ascii")
    except (TypeError, ValueError, RecursionError):
        return None


def cut(text: str, chars_max: int = TEXT_CHARS_MAX) -> str:
    """The beginning and the end of a text, with a mark where something is missing."""
    if len(text) <= chars_max:
        return text
    half = chars_max // 2
    return f"{text[:half]}\n[cut: {len(text) - 2 * half} characters]\n{text[-half:]}"
