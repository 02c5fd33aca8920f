"""Java's store of certificates, written without Java: one certificate put in, replaced or taken out; pure.

Starting Java for this takes two seconds, and a sandbox with a secret waits for it. The format (JKS) is a head, entries,
and a digest over all of it with a password that everybody knows; it keeps out accidents, not people.
"""

from __future__ import annotations

import base64
import hashlib
import struct

MAGIC = b"\xfe\xed\xfe\xed"
PASSWORD = "changeit"  # Java's own default, known to all

_VERSION = 2
_KEY, _CERTIFICATE = 1, 2
_DIGEST_BYTES = 20
_SALT = b"Mighty Aphrodite"
_ENTRIES_MAX = 10_000


class NotReadable(ValueError):
    """It is not a store of this kind, or it is damaged."""


def with_certificate(store: bytes, alias: str, der: bytes, now_ms: int) -> bytes:
    """The store with this certificate under this alias, and without what was there under it before."""
    name = alias.encode("ascii")
    entry = struct.pack(f">IH{len(name)}sQ", _CERTIFICATE, len(name), name, now_ms)
    entry += struct.pack(">H5sI", 5, b"X.509", len(der)) + der
    return _store([*_others(store, alias), entry])


def without_certificate(store: bytes, alias: str, der: bytes) -> bytes:
    """The store without what is under this alias, and without this certificate, whatever its name."""
    return _store([entry for entry in _others(store, alias) if not der or not entry.endswith(der)])


def der_of(pem: str) -> bytes:
    """The bytes of the first certificate in a text."""
    _, begin, rest = pem.partition("-----BEGIN CERTIFICATE-----")
    body, end, _ = rest.partition("-----END CERTIFICATE-----")
    if not begin or not end:
        raise NotReadable("no certificate")
    return base64.b64decode(body)


def _others(store: bytes, alias: str) -> list[bytes]:
    """The entries of a store under other names."""
    body, digest = store[:-_DIGEST_BYTES], store[-_DIGEST_BYTES:]
    if not store.startswith(MAGIC) or _digest(body) != digest:
        raise NotReadable("not a store, or not with the usual password")
    return [entry for name, entry in _entries(body) if name != alias]


def _store(entries: list[bytes]) -> bytes:
    fresh = MAGIC + struct.pack(">II", _VERSION, len(entries)) + b"".join(entries)
    return fresh + _digest(fresh)


def _digest(body: bytes) -> bytes:
    return hashlib.sha1(PASSWORD.encode("utf-16-be") + _SALT + body, usedforsecurity=False).digest()


def _entries(body: bytes) -> list[tuple[str, bytes]]:
    """Each entry with its alias."""
    try:
        version, count = struct.unpack_from(">II", body, 4)
        if version != _VERSION or count > _ENTRIES_MAX:
            raise NotReadable("another version")
        found: list[tuple[str, bytes]] = []
        position = 12
        for _ in range(count):
            alias, end = _entry(body, position)
            found.append((alias, body[position:end]))
            position = end
    except struct.error:
        raise NotReadable("it ends in the middle") from None
    if position != len(body):
        raise NotReadable("it goes on behind its end")
    return found


def _entry(body: bytes, position: int) -> tuple[str, int]:
    """The alias of the entry that begins here, and where it ends."""
    tag, length = struct.unpack_from(">IH", body, position)
    alias = body[position + 6 : position + 6 + length].decode("utf-8", "replace")
    position += 6 + length + 8  # and its date
    certificates = 1
    if tag == _KEY:
        (length,) = struct.unpack_from(">I", body, position)
        position += 4 + length
        (certificates,) = struct.unpack_from(">I", body, position)
        position += 4
    elif tag != _CERTIFICATE:
        raise NotReadable("an entry of an unknown kind")
    for _ in range(min(certificates, _ENTRIES_MAX)):
        (length,) = struct.unpack_from(">H", body, position)
        (size,) = struct.unpack_from(">I", body, position + 2 + length)
        position += 2 + length + 4 + size
    return alias, position
