# Generated from src/atoll/client/_async/filebase.py by tools/unasync.py: change that file, not this one.
"""What all parts of `sb.files` share: the server, and where on it the sandbox's files are."""

from __future__ import annotations

from atoll.client._sync.transport import Transport


class FileBase:
    """The way to the files of one sandbox."""

    def __init__(self, transport: Transport, sandbox_path: str) -> None:
        self._transport = transport
        self._path = f"{sandbox_path}/files"
        self._directories_path = f"{sandbox_path}/directories"
