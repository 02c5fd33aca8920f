"""Many files as one body: for each a head and its bytes, in the frames that the server reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from atoll.client import _exchange as exchange
from atoll.client._twins import Source, chunks
from atoll.model import limits
from atoll.wire import framing
from atoll.wire.public import FileHead

Batch = Mapping[str, Source] | Iterable[tuple[str, Source]]


def batch_frames(files: Batch, mode: str | None) -> Iterator[bytes]:
    """Frames in pieces of a good size: small files travel together, large ones in parts."""
    buffer = bytearray()
    for frame in _frames(files, mode):
        buffer += frame
        if len(buffer) >= limits.UPLOAD_CHUNK_BYTES:
            yield bytes(buffer)
            buffer.clear()
    if buffer:
        yield bytes(buffer)


def _frames(files: Batch, mode: str | None) -> Iterator[bytes]:
    for path, source in files.items() if isinstance(files, Mapping) else files:
        yield framing.encode(framing.CONTROL, exchange.encode(FileHead(path=path, mode=mode)))
        for piece in chunks(source):
            for start in range(0, len(piece), limits.FRAME_BYTES_MAX):
                yield framing.encode(framing.INPUT, piece[start : start + limits.FRAME_BYTES_MAX])
