"""The outside of a snapshot's file: who wrote it, compressed blocks, and a digest with a signature. No I/O.

    magic 8 · version 2 · public key of who wrote it 32
    blocks: length 4 · a zstd frame of at most 1 MiB        ... · length 0
    SHA-256 of all before 32 · signature of that 64

A block is a frame of its own, so what comes out of it is bounded by what a block may be, whatever the frame promises.
Numbers are big-endian.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from atoll.model import limits
from atoll.model.errors import InvalidArgument
from atoll.node.snapshotfile.items import damaged

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MAGIC = b"\x8fATOLL\r\n"
VERSION = 1
KEY_BYTES = 32
DIGEST_BYTES = 32
SIGNATURE_BYTES = 64

_PREAMBLE = struct.Struct(f">8sH{KEY_BYTES}s")
_LENGTH = struct.Struct(">I")
_TRAILER_BYTES = DIGEST_BYTES + SIGNATURE_BYTES
_LEVEL = 3
_WINDOW_LOG_MAX = 20  # a frame of 1 MiB needs no more memory than that
_PACKED_BYTES_MAX = limits.SNAPSHOT_BLOCK_BYTES + limits.SNAPSHOT_BLOCK_BYTES // 64  # what does not shrink grows a bit


@dataclass(frozen=True, slots=True)
class Seal:
    """What stands at the end of a file, and the key at its beginning."""

    signer: bytes
    digest: bytes
    signature: bytes


class Writer:
    """Makes the outside: each method gives the bytes that are to be written next."""

    def __init__(self, signer: bytes) -> None:
        self._signer = signer
        self._digest = hashlib.sha256()
        self._waiting = bytearray()

    def begin(self) -> bytes:
        return self._said(_PREAMBLE.pack(MAGIC, VERSION, self._signer))

    def add(self, data: bytes) -> bytes:
        self._waiting += data
        out = []
        while len(self._waiting) >= limits.SNAPSHOT_BLOCK_BYTES:
            out.append(self._block(bytes(self._waiting[: limits.SNAPSHOT_BLOCK_BYTES])))
            del self._waiting[: limits.SNAPSHOT_BLOCK_BYTES]
        return b"".join(out)

    def end(self, sign: Callable[[bytes], bytes]) -> bytes:
        last = self._block(bytes(self._waiting)) if self._waiting else b""
        last += self._said(_LENGTH.pack(0))
        digest = self._digest.digest()
        return last + digest + sign(digest)

    def _block(self, data: bytes) -> bytes:
        packed = zstd.compress(data, _LEVEL)
        return self._said(_LENGTH.pack(len(packed)) + packed)

    def _said(self, data: bytes) -> bytes:
        self._digest.update(data)
        return data


class Reader:
    """Takes the outside off: bytes of the file in, what was in its blocks out."""

    def __init__(self) -> None:
        self.signer: bytes | None = None
        """Who claims to have written it; known after the first bytes, proven by the seal."""
        self._digest = hashlib.sha256()
        self._buffer = bytearray()
        self._blocks_done = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        self._buffer += data
        if self.signer is None and not self._preamble():
            return
        while not self._blocks_done and (block := self._block()) is not None:
            yield block
        if self._blocks_done and len(self._buffer) > _TRAILER_BYTES:
            raise damaged("there is more after its end")

    def finish(self) -> Seal:
        """Everything has been fed; the seal, if the digest in it is that of the file."""
        if self.signer is None or not self._blocks_done or len(self._buffer) != _TRAILER_BYTES:
            raise damaged("it ends too early")
        told, signature = bytes(self._buffer[:DIGEST_BYTES]), bytes(self._buffer[DIGEST_BYTES:])
        if not hmac.compare_digest(told, self._digest.digest()):
            raise damaged("its checksum is that of another content")
        return Seal(self.signer, told, signature)

    def _preamble(self) -> bool:
        """Read it as far as it is there: a file that is no snapshot is refused at its first byte that differs."""
        if not MAGIC.startswith(self._buffer[: len(MAGIC)]):
            raise InvalidArgument("this is no snapshot of Atoll", code="snapshot_foreign")
        if len(self._buffer) < _PREAMBLE.size:
            return False
        _, version, signer = _PREAMBLE.unpack_from(self._buffer)
        if version != VERSION:
            raise InvalidArgument(
                f"the snapshot's file is of version {version}, and this server reads version {VERSION}",
                code="snapshot_version",
                hint="Export it with the same version of Atoll as the one that imports it.",
            )
        self.signer = signer
        self._taken(_PREAMBLE.size)
        return True

    def _block(self) -> bytes | None:
        """The content of the next block, if all of it is there."""
        if len(self._buffer) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer)
        if length == 0:
            self._taken(_LENGTH.size)
            self._blocks_done = True
            return None
        if length > _PACKED_BYTES_MAX:
            raise damaged("a block is too large")
        if len(self._buffer) < _LENGTH.size + length:
            return None
        return _unpacked(self._taken(_LENGTH.size + length)[_LENGTH.size :])

    def _taken(self, count: int) -> bytes:
        data = bytes(self._buffer[:count])
        del self._buffer[:count]
        self._digest.update(data)
        return data


def _unpacked(packed: bytes) -> bytes:
    decompressor = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: _WINDOW_LOG_MAX})
    try:
        data = decompressor.decompress(packed, max_length=limits.SNAPSHOT_BLOCK_BYTES + 1)
    except zstd.ZstdError as error:
        raise damaged(f"a block cannot be unpacked: {str(error)[:120]}") from None
    if len(data) > limits.SNAPSHOT_BLOCK_BYTES or not data or not decompressor.eof or decompressor.unused_data:
        raise damaged("a block is not one frame of the size that a block has")
    return data
