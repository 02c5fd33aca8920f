# Generated from src/atoll/client/_async/filecontent.py by tools/unasync.py: change that file, not this one.
"""The bytes of files: read and write whole, in pieces, by range, many at once; from and to files of this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from atoll.client import _exchange as exchange
from atoll.client._sync.filebase import FileBase
from atoll.client._batch import Batch, batch_frames
from atoll.client._local import LocalTarget, open_source
from atoll.client._progress import Meter, Progress
from atoll.client._twins import Source, chunks
from atoll.model import limits
from atoll.model.errors import TooLarge
from atoll.wire.public import FilesWritten, FileView, FileWritten

Pieces = list[bytes]
_RAW = "application/octet-stream"


class FileContent(FileBase):
    """Reading and writing."""

    def read(self, path: str, *, user: str | int | None = None) -> str:
        """The text of a file; bytes that are not UTF-8 are kept as surrogates, so `write` gives them back.

        Example:
            text = sb.files.read("/etc/os-release")
        """
        return (self.read_bytes(path, user=user)).decode("utf-8", "surrogateescape")

    def read_bytes(
        self, path: str, *, offset: int | None = None, length: int | None = None, user: str | int | None = None
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
        self, path: str, *, offset: int | None = None, length: int | None = None, user: str | int | None = None
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
        user: str | int | None = None,
    ) -> FileWritten:
        """Write a file from text, bytes, an iterable of bytes, or a file that is open in binary mode.

        Folders on the way are made. A file that was there is replaced at once or not at all.

        Example:
            sb.files.write("/home/user/a.txt", "hello")
            sb.files.write("run.sh", "#!/bin/sh\\necho hi\\n", mode=0o755)
        """
        where = exchange.query(path=path, mode=exchange.octal(mode), append=append or None, user=user)
        target = f"{self._path}/content{where}"
        if isinstance(data, str):
            data = data.encode("utf-8", "surrogateescape")
        # An append that was done twice is not the same: only what may be repeated is sent as one body.
        if isinstance(data, bytes) and not append:
            answer = self._transport.fetch("PUT", target, data, content_type=_RAW)
            return exchange.decode(answer, FileWritten)
        with self._transport.stream(
            "PUT", target, chunks(data), content_type=_RAW, read_s=limits.CLIENT_ANSWER_S_MAX
        ) as response:
            return exchange.decode(response.read(), FileWritten)

    def write_many(self, files: Batch, *, mode: int | None = None, user: str | int | None = None) -> int:
        """Write many files in one call; says how many. The first that fails ends it, and those before it stay.

        Example:
            sb.files.write_many({"src/a.py": "A = 1\\n", "src/b.py": "B = 2\\n"})
        """
        with self._transport.stream(
            "POST",
            f"{self._path}/batch{exchange.query(user=user)}",
            chunks(batch_frames(files, exchange.octal(mode))),
            content_type=exchange.FRAMES,
            read_s=limits.CLIENT_ANSWER_S_MAX,
        ) as response:
            return exchange.decode(response.read(), FilesWritten).written

    def upload(
        self,
        local_path: str | os.PathLike[str],
        path: str,
        *,
        mode: int | None = None,
        user: str | int | None = None,
        on_progress: Progress | None = None,
    ) -> FileWritten:
        """Copy a file of this machine into the sandbox, in pieces.

        `on_progress` is called with the bytes that are done and, where it is known, how many there are.

        Example:
            sb.files.upload("data.csv", "/home/user/data.csv")
        """
        where = exchange.query(path=path, mode=exchange.octal(mode), user=user)
        with open_source(Path(local_path)) as (file, size_bytes):
            with self._transport.stream(
                "PUT",
                f"{self._path}/content{where}",
                chunks(Meter(size_bytes, on_progress).reading(file)),
                content_type=_RAW,
                content_bytes=size_bytes,
                read_s=limits.CLIENT_ANSWER_S_MAX,
            ) as response:
                return exchange.decode(response.read(), FileWritten)

    def download(
        self,
        path: str,
        local_path: str | os.PathLike[str],
        *,
        size_bytes_max: int | None = None,
        user: str | int | None = None,
        on_progress: Progress | None = None,
    ) -> int:
        """Copy a file of the sandbox to this machine, in pieces; says how many bytes it had.

        The local file appears when it is complete. `size_bytes_max` protects your disk from a file without end.

        Example:
            sb.files.download("/home/user/plot.png", "plot.png")
        """
        total = self._size(path, user) if on_progress is not None else None
        meter = Meter(total, on_progress)
        with LocalTarget(Path(local_path), size_bytes_max) as target:
            for data in self.stream(path, user=user):
                target.write(data)
                meter.add(len(data))
        return target.size_bytes

    def _size(self, path: str, user: str | int | None) -> int:
        where = exchange.query(path=path, follow=True, user=user)
        return (self._transport.call("GET", f"{self._path}/stat{where}", FileView)).size
