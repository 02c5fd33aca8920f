"""Files of a volume, without a sandbox."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType

from atoll.client import _exchange as exchange
from atoll.client._async.transport import AsyncTransport
from atoll.client._config import Config
from atoll.client._listed import Listed
from atoll.client._local import LocalTarget, open_source
from atoll.client._progress import Meter, Progress
from atoll.client._twins import AsyncSource, async_chunks
from atoll.model import limits
from atoll.model.errors import NotFound, TooLarge
from atoll.wire.public import (
    FileList,
    FileView,
    FileWritten,
    VolumeDirectoryCreate,
    VolumeFileChange,
    VolumeFileMove,
)

Views = Listed[FileView]
Pieces = list[bytes]
_RAW = "application/octet-stream"
_LONG_S = limits.GUEST_IDLE_S_MAX  # a large folder takes its time


class AsyncVolumeFiles:
    """The files of one volume; paths begin at its root. It works whether or not sandboxes have the volume mounted.

    Used as a context it keeps its connections; without, each call makes its own.

    Example:
        files = AsyncVolume.files("data")
        await files.write("/a.txt", "hello")
    """

    def __init__(self, config: Config, volume_path: str) -> None:
        self._config = config
        self._path = f"{volume_path}/files"
        self._directories_path = f"{volume_path}/directories"
        self._kept: AsyncTransport | None = None

    async def __aenter__(self) -> AsyncVolumeFiles:
        self._kept = AsyncTransport.acquire(self._config)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            await kept.release()

    @asynccontextmanager
    async def _transport(self) -> AsyncIterator[AsyncTransport]:
        transport = AsyncTransport.acquire(self._config)
        try:
            yield transport
        finally:
            await transport.release()

    async def read(self, path: str) -> str:
        """The text of a file; bytes that are not UTF-8 are kept as surrogates, so `write` gives them back.

        Example:
            text = await AsyncVolume.files("data").read("/a.txt")
        """
        return (await self.read_bytes(path)).decode("utf-8", "surrogateescape")

    async def read_bytes(self, path: str, *, offset: int | None = None, length: int | None = None) -> bytes:
        """The bytes of a file, or of a part of it. What is too large for memory is refused: use `download`.

        Example:
            head = await AsyncVolume.files("data").read_bytes("/data.bin", length=512)
        """
        pieces: Pieces = []
        size_bytes = 0
        async for data in self.stream(path, offset=offset, length=length):
            pieces.append(data)
            size_bytes += len(data)
            if size_bytes > limits.FILE_READ_BYTES_MAX:
                raise TooLarge(
                    f"{path!r} has more than {limits.FILE_READ_BYTES_MAX} bytes",
                    hint="Use download(path, local_path), or read a part with offset= and length=.",
                )
        return b"".join(pieces)

    async def stream(self, path: str, *, offset: int | None = None, length: int | None = None) -> AsyncIterator[bytes]:
        """The bytes of a file in pieces, however large it is.

        Example:
            async for data in AsyncVolume.files("data").stream("/video.mp4"):
                print(len(data))
        """
        where = exchange.query(path=path, offset=offset, length=length)
        async with (
            self._transport() as transport,
            transport.stream(
                "GET", f"{self._path}/content{where}", accept=_RAW, read_s=limits.CLIENT_ANSWER_S_MAX
            ) as response,
        ):
            async for data in response.aiter_raw():
                yield data

    async def write(
        self,
        path: str,
        data: AsyncSource,
        *,
        mode: int | None = None,
        uid: int | None = None,
        gid: int | None = None,
        overwrite: bool = True,
    ) -> FileWritten:
        """Write a file from text, bytes, an iterable of bytes, or a file that is open in binary mode.

        Folders on the way are made. A file that was there is replaced at once or not at all; a new one belongs to
        the sandboxes' user, unless `uid` and `gid` say otherwise.

        Example:
            await AsyncVolume.files("data").write("/models/weights.bin", open("weights.bin", "rb"))
        """
        where = exchange.query(
            path=path, mode=exchange.octal(mode), uid=uid, gid=gid, overwrite=None if overwrite else False
        )
        if isinstance(data, str):
            data = data.encode("utf-8", "surrogateescape")
        async with self._transport() as transport:
            if isinstance(data, bytes) and overwrite:
                answer = await transport.fetch("PUT", f"{self._path}/content{where}", data, content_type=_RAW)
                return exchange.decode(answer, FileWritten)
            async with transport.stream(
                "PUT",
                f"{self._path}/content{where}",
                async_chunks(data),
                content_type=_RAW,
                read_s=limits.CLIENT_ANSWER_S_MAX,
            ) as response:
                return exchange.decode(await response.aread(), FileWritten)

    async def upload(
        self,
        local_path: str | os.PathLike[str],
        path: str,
        *,
        mode: int | None = None,
        on_progress: Progress | None = None,
    ) -> FileWritten:
        """Copy a file of this machine into the volume, in pieces.

        Example:
            await AsyncVolume.files("data").upload("data.csv", "/data.csv")
        """
        where = exchange.query(path=path, mode=exchange.octal(mode))
        with open_source(Path(local_path)) as (file, size_bytes):
            async with (
                self._transport() as transport,
                transport.stream(
                    "PUT",
                    f"{self._path}/content{where}",
                    async_chunks(Meter(size_bytes, on_progress).reading(file)),
                    content_type=_RAW,
                    content_bytes=size_bytes,
                    read_s=limits.CLIENT_ANSWER_S_MAX,
                ) as response,
            ):
                return exchange.decode(await response.aread(), FileWritten)

    async def download(
        self, path: str, local_path: str | os.PathLike[str], *, on_progress: Progress | None = None
    ) -> int:
        """Copy a file of the volume to this machine, in pieces; says how many bytes it had.

        Example:
            await AsyncVolume.files("data").download("/plot.png", "plot.png")
        """
        total = (await self.stat(path, follow=True)).size if on_progress is not None else None
        meter = Meter(total, on_progress)
        with LocalTarget(Path(local_path), None) as target:
            async for data in self.stream(path):
                target.write(data)
                meter.add(len(data))
        return target.size_bytes

    async def list(self, path: str = "/", *, depth: int = 1) -> Views:
        """What is in a folder, and in its folders down to `depth`; `truncated` of the answer says that it was cut.

        Example:
            print([f.name for f in await AsyncVolume.files("data").list("/")])
        """
        async with self._transport() as transport:
            where = exchange.query(path=path, depth=depth)
            found = await transport.call("GET", f"{self._path}{where}", FileList)
        return Listed(found.items, truncated=found.truncated)

    async def stat(self, path: str, *, follow: bool = False) -> FileView:
        """What is known about one file or folder; with `follow` about what a link leads to.

        Example:
            size = (await AsyncVolume.files("data").stat("/a.txt")).size
        """
        async with self._transport() as transport:
            where = exchange.query(path=path, follow=follow or None)
            return await transport.call("GET", f"{self._path}/stat{where}", FileView)

    async def exists(self, path: str) -> bool:
        """Whether there is such a file or folder.

        Example:
            print(await AsyncVolume.files("data").exists("/a.txt"))
        """
        try:
            await self.stat(path)
        except NotFound as error:
            if error.code == "volume_not_found":
                raise
            return False
        return True

    async def mkdir(
        self, path: str, *, mode: int | None = None, uid: int | None = None, gid: int | None = None
    ) -> FileView:
        """Make a folder and those above it; one that is there already is fine.

        Example:
            await AsyncVolume.files("data").mkdir("/models/new")
        """
        body = VolumeDirectoryCreate(path=path, uid=uid, gid=gid, mode=exchange.octal(mode))
        async with self._transport() as transport:
            return await transport.call("POST", self._directories_path, FileView, body)

    async def move(self, source: str, target: str, *, overwrite: bool = True, parents: bool = False) -> FileView:
        """Move or rename a file or folder. With `parents` the folders on the way are made.

        Example:
            await AsyncVolume.files("data").move("/draft.txt", "/final.txt")
        """
        body = VolumeFileMove(source=source, target=target, overwrite=overwrite, parents=parents)
        async with self._transport() as transport:
            return await transport.call("POST", f"{self._path}/move", FileView, body)

    async def change(
        self, path: str, *, mode: int | None = None, uid: int | None = None, gid: int | None = None
    ) -> FileView:
        """Change the rights or the owner of a file or folder; what is not given stays.

        Example:
            await AsyncVolume.files("data").change("/run.sh", mode=0o755)
        """
        body = VolumeFileChange(path=path, uid=uid, gid=gid, mode=exchange.octal(mode))
        async with self._transport() as transport:
            return await transport.call("PATCH", self._path, FileView, body)

    async def remove(self, path: str, *, recursive: bool = False, missing_ok: bool = False) -> None:
        """Remove a file or an empty folder; with `recursive` a folder and all that is in it.

        Example:
            await AsyncVolume.files("data").remove("/old", recursive=True)
        """
        where = exchange.query(path=path, recursive=recursive or None, missing_ok=missing_ok or None)
        async with self._transport() as transport:
            await transport.fetch("DELETE", f"{self._path}{where}", read_s=_LONG_S)
