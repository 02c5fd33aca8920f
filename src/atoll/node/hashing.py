"""SHA-256 of files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from atoll.model import limits


def file_hashes(folder: Path, known: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    """Of all files in a folder; those that are known already are not read again."""
    names = sorted(path.name for path in folder.iterdir() if path.is_file())
    return {name: known.get(name) or file_hash(folder / name) for name in names}


def file_hash(path: Path) -> str:
    digest, buffer = hashlib.sha256(), bytearray(limits.MIB)
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(buffer):
            digest.update(memoryview(buffer)[:count])
    return digest.hexdigest()
