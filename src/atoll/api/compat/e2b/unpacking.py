"""A gzip body as it streams in: one member after the other, as Go's reader takes it; pure, with bounds."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from atoll.model import limits
from atoll.model.errors import InvalidArgument


class Gzip:
    """Feed it the body; it gives what was packed, in pieces that are bounded however well it was.

    A piece may be empty: at the end of a member, so that who feeds it a great many of them can let others on.
    """

    def __init__(self) -> None:
        self._member = _member()

    def feed(self, data: bytes) -> Iterator[bytes]:
        try:
            while data:
                if self._member.eof:
                    self._member = _member()
                yield self._member.decompress(data, limits.FRAME_BYTES_MAX)
                data = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
        except zlib.error:
            raise InvalidArgument("the body is not the gzip that it says to be", code="invalid_body") from None

    def close(self) -> None:
        if not self._member.eof:
            raise InvalidArgument("the compressed body ends too early", code="invalid_body")


def _member() -> zlib._Decompress:
    return zlib.decompressobj(wbits=31)
