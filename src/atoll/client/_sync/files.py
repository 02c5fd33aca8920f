# Generated from src/atoll/client/_async/files.py by tools/unasync.py: change that file, not this one.
"""Files of a sandbox: read, write, list, move, remove; large ones as streams."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from atoll.client import _exchange as exchange
from atoll.client._sync.transport import Transport
from atoll.client._local import LocalTarget, open_source
from atoll.client._twins import Source, chunks
from atoll.model import limits
from atoll.model.errors import NotFound, TooLarge
from atoll.wire.public import DirectoryCreate, FileList, FileMove, FileView, FileWritten

Views = list[FileView]
Pieces = list[bytes]
_RAW = "application/octet-stream"


class Files:
    """`sb.files`: the files of a sandbox. Paths are absolute, or relative to the user's home."""

    def __init__(self, transport: Transport, sandbox_path: str) -> None:
        self._transport = transport
        self._path = f"{sandbox_path}/files"
        self._directories_path = f"{sandbox_path}/directories"

    def read(self, path: str, *, user: str | None = None) -> str:
        """The text of a file; bytes that are not UTF-8 are kept as surrogates, so `write` gives them back.

        Example:
            text = sb.files.read("/etc/os-release")
        """
        return (self.read_bytes(path, user=user)).decode("utf-8", "surrogateescape")

    def read_bytes(
        self, path: str, *, offset: int | None = None, length: int | None = None, user: str | None = None
    ) -> bytes:
        """The bytes of a file, or of a part of it. What is too large for memory is refused: use `download`.

        Example:
            head = sb.files.read_bytes("data.bin", length=512)
        """
        pieces: Pieces = []
        size_bytes = 0
        for data in self.stream(path, offset=offset, length=length, user=user):
            pieces.append(data)  # joined once at the end: a growing buffer is copied again and again
            size_bytes += len(data)
            if size_bytes > limits.FILE_READ_BYTES_MAX:
                raise TooLarge(
                    f"{path!r} has more than {limits.FILE_READ_BYTES_MAX} bytes",
                    hint="Use files.download(path, local_path), or read a part with offset= and length=.",
                )
        return b"".join(pieces)

    def stream(
        self, path: str, *, offset: int | None = None, length: int | None = None, user: str | None = None
    ) -> Iterator[bytes]:
        """The bytes of a file in pieces, however large it is.

        Example:
            for data in sb.files.stream("video.mp4"):
                print(len(data))
        """
        where = exchange.query(path=path, offset=offset, length=length, user=user)
        with self._transport.stream(
            "GET", f"{self._path}/content{where}", accept=_RAW, read_s=limits.CLIENT_ANSWER_S_MAX
        ) as response:
            for data in response.iter_raw():
                yield data

    def write(
        self,
        path: str,
        data: Source,
        *,
        mode: int | None = None,
        append: bool = False,
        user: str | None = None,
    ) -> FileWritten:
        """Write a file from text, bytes, an iterable of bytes, or a file that is open in binary mode.

        Folders on the way are made. A file that was there is replaced at once or not at all.

        Example:
            sb.files.write("/home/user/a.txt", "hello")
            sb.files.write("run.sh", "#!/bin/sh\\necho hi\\n", mode=0o755)
        """
        where = exchange.query(path=path, mode=_octal(mode), append=append or None, user=user)
        target = f"{self._path}/content{where}"
        if isinstance(data, str):
            data = data.encode("utf-8", "surrogateescape")
        if isinstance(data, bytes):
            answer = self._transport.fetch("PUT", target, data, content_type=_RAW)
            return exchange.decode(answer, FileWritten)
        with self._transport.stream(
            "PUT", target, chunks(data), content_type=_RAW, read_s=limits.CLIENT_ANSWER_S_MAX
        ) as response:
            return exchange.decode(response.read(), FileWritten)

    def upload(
        self, local_path: str | os.PathLike[str], path: str, *, mode: int | None = None, user: str | None = None
    ) -> FileWritten:
        """Copy a file of this machine into the sandbox, in pieces.

        Example:
            sb.files.upload("data.csv", "/home/user/data.csv")
        """
        where = exchange.query(path=path, mode=_octal(mode), user=user)
        with open_source(Path(local_path)) as (file, size_bytes):
            with self._transport.stream(
                "PUT",
                f"{self._path}/content{where}",
                chunks(file),
                content_type=_RAW,
                content_bytes=size_bytes,
                read_s=limits.CLIENT_ANSWER_S_MAX,
            ) as response:
                return exchange.decode(response.read(), FileWritten)

    def download(
        self, path: str, local_path: str | os.PathLike[str], *, size_bytes_max: int | None = None
    ) -> int:
        """Copy a file of the sandbox to this machine, in pieces; says how many bytes it had.

        The local file appears when it is complete. `size_bytes_max` protects your disk from a file without end.

        Example:
            sb.files.download("/home/user/plot.png", "plot.png")
        """
        with LocalTarget(Path(local_path), size_bytes_max) as target:
            for data in self.stream(path):
                target.write(data)
        return target.size_bytes

    def list(self, path: str = ".", *, depth: int = 1, user: str | None = None) -> Views:
        """What is in a folder, and in its folders down to `depth`.

        Example:
            for f in sb.files.list("/home/user"):
                print(f.type, f.size, f.name)
        """
        where = exchange.query(path=path, depth=depth, user=user)
        return (self._transport.call("GET", f"{self._path}{where}", FileList)).items

    def stat(self, path: str, *, user: str | None = None) -> FileView:
        """What is known about one file or folder.

        Example:
            size = (sb.files.stat("a.txt")).size
        """
        where = exchange.query(path=path, user=user)
        return self._transport.call("GET", f"{self._path}/stat{where}", FileView)

    def exists(self, path: str, *, user: str | None = None) -> bool:
        """Whether there is such a file or folder.

        Example:
            if not sb.files.exists("a.txt"):
                sb.files.write("a.txt", "")
        """
        try:
            self.stat(path, user=user)
        except NotFound as error:
            if error.code == "sandbox_not_found":
                raise
            return False
        return True

    def remove(self, path: str, *, recursive: bool = False, user: str | None = None) -> None:
        """Remove a file or an empty folder; with `recursive` a folder and all that is in it.

        Example:
            sb.files.remove("build", recursive=True)
        """
        where = exchange.query(path=path, recursive=recursive or None, user=user)
        self._transport.fetch("DELETE", f"{self._path}{where}")

    def mkdir(self, path: str) -> None:
        """Make a folder and those above it; one that is there already is fine.

        Example:
            sb.files.mkdir("/home/user/project/src")
        """
        self._transport.fetch("POST", self._directories_path, exchange.encode(DirectoryCreate(path=path)))

    def move(self, source: str, target: str) -> None:
        """Move or rename a file or folder.

        Example:
            sb.files.move("draft.txt", "final.txt")
        """
        body = FileMove(source=source, target=target)
        self._transport.fetch("POST", f"{self._path}/move", exchange.encode(body))


def _octal(mode: int | None) -> str | None:
    return None if mode is None else f"{mode:o}"
