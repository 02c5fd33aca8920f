"""What all parts of `sb.files` share: the server, and where on it the sandbox's files are."""

from __future__ import annotations

from atoll.client._async.transport import AsyncTransport


class AsyncFileBase:
    """The way to the files of one sandbox."""

    def __init__(self, transport: AsyncTransport, sandbox_path: str) -> None:
        self._transport = transport
        self._path = f"{sandbox_path}/files"
        self._directories_path = f"{sandbox_path}/directories"
