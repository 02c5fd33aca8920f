"""Multipart bodies (RFC 7578) as they stream in: the head of each part, then its bytes; pure, with bounds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import unquote

from atoll.model import limits
from atoll.model.errors import InvalidArgument

_BOUNDARY = re.compile(r'boundary=(?:"([^"]{1,200})"|([^\s;]{1,200}))', re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class PartBegun:
    """A part's head: the field's name, and the file's name if it has one."""

    name: str
    filename: str | None


@dataclass(frozen=True, slots=True)
class PartData:
    data: bytes


@dataclass(frozen=True, slots=True)
class PartEnded:
    pass


Happening = PartBegun | PartData | PartEnded


def boundary_of(content_type: str) -> bytes:
    match = _BOUNDARY.search(content_type)
    if match is None:
        raise InvalidArgument("the multipart body has no boundary", code="invalid_body")
    return (match[1] or match[2]).encode("latin-1")


class Parts:
    """Feed it the body; it tells what is in it. What does not end as it should is InvalidArgument at `close`."""

    def __init__(self, boundary: bytes) -> None:
        self._delimiter = b"\r\n--" + boundary
        self._buffer = bytearray(b"\r\n")  # the first delimiter has no line before it
        self._state = "preamble"

    def feed(self, data: bytes) -> Iterator[Happening]:
        self._buffer += data
        while True:
            before = (self._state, len(self._buffer))
            yield from self._step()
            if (self._state, len(self._buffer)) == before:
                return

    def close(self) -> None:
        if self._state != "ended":
            raise InvalidArgument("the multipart body ends too early", code="invalid_body")

    def _step(self) -> Iterator[Happening]:
        if self._state in ("preamble", "body"):
            yield from self._until_delimiter()
        elif self._state == "delimiter":
            self._after_delimiter()
        elif self._state == "head":
            yield from self._head()
        else:
            self._buffer.clear()

    def _until_delimiter(self) -> Iterator[Happening]:
        at = self._buffer.find(self._delimiter)
        # What may be the beginning of a delimiter stays until more has come.
        sure = at if at >= 0 else max(0, len(self._buffer) - len(self._delimiter) + 1)
        if sure and self._state == "body":
            yield PartData(bytes(self._buffer[:sure]))
        del self._buffer[:sure]
        if at >= 0:
            del self._buffer[: len(self._delimiter)]
            if self._state == "body":
                yield PartEnded()
            self._state = "delimiter"

    def _after_delimiter(self) -> None:
        if len(self._buffer) < 2:
            return
        if self._buffer[:2] == b"--":
            self._state = "ended"
        elif self._buffer[:2] == b"\r\n":
            self._state = "head"
        else:
            raise InvalidArgument("the multipart body is broken", code="invalid_body")
        del self._buffer[:2]

    def _head(self) -> Iterator[Happening]:
        at = self._buffer.find(b"\r\n\r\n")
        if at < 0:
            if len(self._buffer) > limits.HTTP_HEAD_BYTES_MAX:
                raise InvalidArgument("the head of a part is too long", code="invalid_body")
            return
        head = bytes(self._buffer[:at])
        del self._buffer[: at + 4]
        self._state = "body"
        yield _begun(head)


def _begun(head: bytes) -> PartBegun:
    fields: dict[str, str] = {}
    for line in head.decode("utf-8", "surrogateescape").split("\r\n"):
        name, _, value = line.partition(":")
        if name.strip().lower() == "content-disposition":
            fields = dict(_parameters(value))
    extended = fields.get("filename*", "")
    if extended.lower().startswith("utf-8''"):
        return PartBegun(fields.get("name", ""), unquote(extended[7:]))
    return PartBegun(fields.get("name", ""), fields.get("filename"))


def _parameters(disposition: str) -> Iterator[tuple[str, str]]:
    """The parameters of a disposition. A quote in a quoted text is escaped with a backslash or in percent."""
    for match in re.finditer(r';\s*([\w*-]{1,40})\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^;\s]*))', disposition):
        quoted = match[2]
        text = match[3] if quoted is None else re.sub(r"\\(.)", r"\1", quoted).replace("%22", '"')
        yield match[1].lower(), text.replace("%0D%0A", "\r\n").replace("%0A", "\n").replace("%0D", "\r")
