"""Files of this machine that the SDK reads from or writes to."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO

from atoll.model.errors import InvalidArgument, TooLarge


@contextmanager
def local_errors(path: Path) -> Iterator[None]:
    """What this machine refuses is an error of ours that names the file."""
    try:
        yield
    except OSError as error:
        raise InvalidArgument(f"{path}: {error.strerror or error}", code="local_file") from error


@contextmanager
def open_source(path: Path) -> Iterator[tuple[IO[bytes], int | None]]:
    """A local file to read, and its size if it is one that keeps it (a pipe does not)."""
    with local_errors(path):
        file = path.open("rb")
    with file:
        status = os.fstat(file.fileno())
        yield file, status.st_size if os.path.isfile(path) else None  # noqa: PTH113 - follows links, and never raises


class LocalTarget:
    """A local file that appears when it is complete; after an error there is nothing of it."""

    def __init__(self, path: Path, size_bytes_max: int | None) -> None:
        self._path = path
        self._size_bytes_max = size_bytes_max
        self.size_bytes = 0
        with local_errors(path):
            if path.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))  # known before anything is sent
        with local_errors(path.parent):
            descriptor, name = tempfile.mkstemp(prefix=f".{path.name[:100]}.", dir=path.parent)
        self._part = Path(name)
        self._file = os.fdopen(descriptor, "wb")

    def write(self, data: bytes) -> None:
        self.size_bytes += len(data)
        if self._size_bytes_max is not None and self.size_bytes > self._size_bytes_max:
            raise TooLarge(f"the file has more than {self._size_bytes_max} bytes")
        with local_errors(self._path):
            self._file.write(data)

    def __enter__(self) -> LocalTarget:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._publish()
        finally:
            with contextlib.suppress(OSError):  # what is still to be written is not wanted any more
                self._file.close()
            self._part.unlink(missing_ok=True)

    def _publish(self) -> None:
        with local_errors(self._path):
            self._file.close()
            mask = os.umask(0)
            os.umask(mask)
            self._part.chmod(0o666 & ~mask)  # as any new file; mkstemp gives 0600
            self._part.replace(self._path)
