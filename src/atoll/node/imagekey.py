"""What a server knows the bytes of its own images by: Poly1305 under a secret of its own, which is quick.

SHA-256 of a hundred megabytes takes a processor 90 ms, which is half of what gVisor needs to write them; this takes 12
(seen). The secret is as good as the image: both are in the data directory, readable by root only, and nobody else has
to tell whether the bytes are right. Each file has a salt, and so a key that is used once, as Poly1305 wants it.

What comes from elsewhere, or goes there, has a SHA-256, which anybody can compare.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from cryptography.hazmat.primitives.poly1305 import Poly1305

from atoll.node.hashing import file_hash, file_pieces

_NAME = "poly1305"
_SECRET_BYTES = 32
_SALT_BYTES = 16


class Digest(Protocol):
    """A digest that is being made."""

    def update(self, data: memoryview) -> None: ...
    def told(self) -> str:
        """As a manifest has it. Called once."""
        ...


class ImageKey:
    """The secret of a data directory, made when it is first needed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._secret = b""
        self._making = threading.Lock()

    def begin(self) -> Digest:
        """For bytes that this server writes."""
        return _Salted(self._key, secrets.token_bytes(_SALT_BYTES))

    def matches(self, path: Path, told: str) -> bool:
        """Whether a file is the one that a manifest tells of."""
        name, _, rest = told.partition(":")
        if name != _NAME:
            return hmac.compare_digest(file_hash(path), told)
        try:
            digest = _Salted(self._key, bytes.fromhex(rest.partition(":")[0]))
        except ValueError:
            return False
        for piece in file_pieces(path):
            digest.update(piece)
        return hmac.compare_digest(digest.told(), told)

    def _key(self, salt: bytes) -> bytes:
        with self._making:  # two first images at once must not have two secrets: one would be lost
            if not self._secret:
                self._secret = self._read() or self._make()
        return hmac.digest(self._secret, salt, hashlib.sha256)

    def _read(self) -> bytes:
        try:
            found = self._path.read_bytes()
        except FileNotFoundError:
            return b""
        return found if len(found) == _SECRET_BYTES else b""

    def _make(self) -> bytes:
        """On the disk before it is used: an image whose secret a crash took would be lost."""
        secret = secrets.token_bytes(_SECRET_BYTES)
        fresh = self._path.with_name(f"{self._path.name}.tmp")
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(fd, "wb", buffering=0) as file:
            file.write(secret)
            os.fsync(fd)
        fresh.replace(self._path)
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return secret


class _Salted:
    def __init__(self, key: Callable[[bytes], bytes], salt: bytes) -> None:
        self._salt = salt
        self._mac = Poly1305(key(salt))

    def update(self, data: memoryview) -> None:
        self._mac.update(data)

    def told(self) -> str:
        return f"{_NAME}:{self._salt.hex()}:{self._mac.finalize().hex()}"
