# Generated from src/atoll/client/_async/archives.py by tools/unasync.py: change that file, not this one.
"""Folders as archives: out of the sandbox, into it, and both ways between it and this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from atoll.client import _exchange as exchange
from atoll.client._sync.filebase import FileBase
from atoll.client._progress import Meter, Progress
from atoll.client._tree import TreeCopied, TreeSource, TreeTarget
from atoll.client._twins import Source, chunks
from atoll.model import limits
from atoll.wire.public import ArchiveUnpacked

_RAW = "application/octet-stream"


class Archives(FileBase):
    """Packing and unpacking."""

    def pack(
        self,
        path: str,
        *,
        format: str = "tar",
        names: tuple[str, ...] = (),
        user: str | int | None = None,
    ) -> Iterator[bytes]:
        """A folder as a `tar`, `tar.gz` or `zip`, in pieces; or only what is named below it.

        Example:
            with open("project.tar.gz", "wb") as file:
                for data in sb.files.pack("project", format="tar.gz"):
                    file.write(data)
        """
        pairs = [("path", path), ("format", format), *(("name", name) for name in names)]
        if user is not None:
            pairs.append(("user", str(user)))
        where = exchange.query_pairs(pairs)
        with self._transport.stream(
            "GET", f"{self._path}/archive{where}", accept="*/*", read_s=limits.TRANSFER_STALL_S_MAX
        ) as response:
            for data in response.iter_raw():
                yield data

    def unpack(
        self,
        data: Source,
        path: str,
        *,
        format: str = "tar",
        bytes_max: int | None = None,
        user: str | int | None = None,
    ) -> ArchiveUnpacked:
        """Unpack an archive into a folder, which is made if it is missing; nothing of it leaves that folder.

        `bytes_max` bounds what may come out of it.

        Example:
            sb.files.unpack(open("project.zip", "rb"), "project", format="zip")
        """
        where = exchange.query(path=path, format=format, bytes_max=bytes_max, user=user)
        with self._transport.stream(
            "PUT",
            f"{self._path}/archive{where}",
            chunks(data),
            content_type=_RAW,
            read_s=limits.GUEST_IDLE_S_MAX,
        ) as response:
            return exchange.decode(response.read(), ArchiveUnpacked)

    def push(
        self,
        local_path: str | os.PathLike[str],
        path: str,
        *,
        user: str | int | None = None,
        on_progress: Progress | None = None,
    ) -> TreeCopied:
        """Copy what is in a folder of this machine into a folder of the sandbox, which is made if it is missing.

        Example:
            sb.files.push("project", "/home/user/project")
        """
        meter = Meter(None, on_progress)
        source = TreeSource(Path(local_path), meter)
        unpacked = self.unpack(source, path, user=user)
        return TreeCopied(unpacked.entries, unpacked.bytes, tuple(source.skipped))

    def pull(
        self,
        path: str,
        local_path: str | os.PathLike[str],
        *,
        size_bytes_max: int | None = None,
        user: str | int | None = None,
        on_progress: Progress | None = None,
    ) -> TreeCopied:
        """Copy what is in a folder of the sandbox into a folder of this machine, which is made if it is missing.

        Links that lead out of the folder are left out, and named in the answer. `size_bytes_max` protects your disk.

        Example:
            sb.files.pull("/home/user/results", "results")
        """
        meter = Meter(None, on_progress)
        with TreeTarget(Path(local_path), size_bytes_max, meter) as target:
            for data in self.pack(path, user=user):
                target.write(data)
            return target.copied()
