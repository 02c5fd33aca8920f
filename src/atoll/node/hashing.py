"""SHA-256 of files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from atoll.model import limits


def file_hashes(folder: Path, known: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    """Of all files in a folder; those that are known already are not read again."""
    names = sorted(path.name for path in folder.iterdir() if path.is_file())
    return {name: known.get(name) or file_hash(folder / name) for name in names}


def file_hash(path: Path) -> str:
    digest = hashlib.sha256()
    for piece in file_pieces(path):
        digest.update(piece)
    return digest.hexdigest()


def file_pieces(path: Path) -> Iterator[memoryview]:
    """Each in the same memory as the one before."""
    buffer = memoryview(bytearray(limits.MIB))
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(buffer):
            yield buffer[:count]
