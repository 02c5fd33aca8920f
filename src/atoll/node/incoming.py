"""Large uploads written to a sandbox's disk from outside: past its network and guest, which cost more than the disk.

The guest decides, as for every write, and says whose file it is to be. The node makes it, in one folder of the
sandbox's own disk that the kernel is told not to leave (`beneath`), for its owner alone. It has no name until it is
whole, so nobody inside sees it grow, and nothing of it is left if the server or the sandbox ends. Then the guest, with
its user's rights, moves it to where it belongs. What the guest declines, or what cannot be made, goes the usual way.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from atoll.model import errors, limits
from atoll.node import beneath
from atoll.node.guestlink import GuestStream
from atoll.wire import guest as wire
from atoll.wire import node

_OFFER = "incoming"  # the parameter of a write by which the node offers to do it so
_ID_MAX = 2**32 - 2


class IncomingFile:
    """The file on the host; blocking."""

    def __init__(self, disk: Path, uid: int, gid: int) -> None:
        root = beneath.root_open(disk)
        try:
            self._folder = beneath.folder_open(root, wire.INCOMING_FOLDER.lstrip("/"), links=False)
        finally:
            os.close(root)
        self._name = ""
        try:
            self._fd = os.open(".", os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600, dir_fd=self._folder)
        except BaseException:
            os.close(self._folder)
            raise
        try:
            os.fchown(self._fd, uid, gid)
        except BaseException:
            self.close()
            raise

    def add(self, chunks: list[bytes | memoryview]) -> None:
        while chunks:
            written = os.writev(self._fd, chunks)
            while chunks and written >= len(chunks[0]):
                written -= len(chunks.pop(0))
            if written:
                chunks[0] = memoryview(chunks[0])[written:]

    def named(self) -> str:
        """All of it is written: the name by which it can be moved."""
        self._name = f".atoll-{os.urandom(8).hex()}"
        beneath.named(self._fd, self._folder, self._name)
        return self._name

    def close(self) -> None:
        """Nothing stays under its name: the guest has moved it away by now, or it was given up."""
        if self._name:
            with contextlib.suppress(OSError):
                os.unlink(self._name, dir_fd=self._folder)
        os.close(self._fd)
        os.close(self._folder)


class IncomingStream:
    """The write operation whose bytes go to the file. What has come is written while the rest arrives."""

    def __init__(self, stream: GuestStream, file: IncomingFile, thread: ThreadPoolExecutor) -> None:
        self._stream = stream
        self._file = file
        self._thread = thread
        self._gathered: list[bytes | memoryview] = []
        self._gathered_bytes = 0
        self._writing: Future[None] | None = None
        self._told_s = time.monotonic()
        self._failed = False

    def __aiter__(self) -> AsyncIterator[wire.Message]:
        return aiter(self._stream)

    async def send(self, payload: bytes | memoryview) -> None:
        self._gathered.append(payload)
        self._gathered_bytes += len(payload)
        if time.monotonic() - self._told_s > limits.INCOMING_TELL_S and not self._failed:
            self._told_s = time.monotonic()
            await self._stream.send_control({"do": "going_on"})
        if self._gathered_bytes >= limits.INCOMING_WRITE_BYTES or len(self._gathered) >= limits.INCOMING_WRITE_PARTS:
            await self._write()

    async def send_control(self, value: dict[str, Any]) -> None:
        await self._stream.send_control(value)

    async def commit(self) -> None:
        await self._write()
        await self._wait_written()
        if self._failed:
            return
        try:
            name = await asyncio.wrap_future(self._thread.submit(self._file.named))
        except OSError as error:
            await self._fail(error)
        else:
            await self._stream.send_control({"do": "placed", "name": name})

    async def _write(self) -> None:
        """Begin to write what has gathered, when what came before it is written."""
        await self._wait_written()
        if self._stream.heard():  # it says something, or hangs up, before it has all: it has failed
            await self._stream.receive()
            raise errors.GuestFailed("the sandbox speaks out of turn", code="guest_garbage")
        chunks, self._gathered, self._gathered_bytes = self._gathered, [], 0
        if not self._failed:
            self._writing = self._thread.submit(self._file.add, chunks)

    async def _wait_written(self) -> None:
        if self._writing is None:
            return
        writing, self._writing = self._writing, None
        try:
            await asyncio.wrap_future(writing)
        except OSError as error:
            await self._fail(error)

    async def _fail(self, error: OSError) -> None:
        """What the disk refuses is the guest's to report, in the words of every other write."""
        self._failed = True
        await self._stream.send_control({"do": "failed", "errno": error.errno})


class Incomings:
    """Those of one node that are under way; each has a thread and two descriptors."""

    def __init__(self) -> None:
        self._count = 0

    def offered(self, op: str, params: dict[str, Any]) -> dict[str, Any]:
        """The same request, with the offer where it is worth it."""
        size = params.get("size")
        worth = op == "file.write" and isinstance(size, int) and size >= limits.INCOMING_BYTES_MIN
        if not worth or self._count >= limits.INCOMING_MAX:
            return params
        return {**params, _OFFER: True}

    @asynccontextmanager
    async def taken(self, stream: GuestStream, params: dict[str, Any], disk: Path) -> AsyncIterator[node.GuestStream]:
        """The operation as its caller goes on with it: straight to the disk, if it was offered and the guest agrees."""
        owner = await _agreed(stream) if _OFFER in params else None
        if owner is None:
            yield stream
            return
        self._count += 1
        thread = ThreadPoolExecutor(1, "incoming")
        try:
            async with _opened(thread, disk, owner) as file:
                yield stream if file is None else IncomingStream(stream, file, thread)
        finally:
            thread.shutdown(wait=False)
            self._count -= 1


async def _agreed(stream: GuestStream) -> tuple[int, int] | None:
    """Whose file it is to be; None if the guest wants the bytes sent. What speaks against the write is raised."""
    message = await stream.receive()
    if not isinstance(message, wire.Event) or message.value.get("type") != "incoming":
        raise errors.GuestFailed("the sandbox answers something else", code="guest_garbage")
    owner = (message.value.get("uid"), message.value.get("gid"))
    if owner == (None, None):
        return None
    if not all(type(number) is int and 0 <= number <= _ID_MAX for number in owner):
        raise errors.GuestFailed("the sandbox names an owner that cannot be", code="guest_garbage")
    return owner  # type: ignore[return-value]


@asynccontextmanager
async def _opened(thread: ThreadPoolExecutor, disk: Path, owner: tuple[int, int]) -> AsyncIterator[IncomingFile | None]:
    """None if it cannot be made: then the inside has changed the folder, and the bytes are sent."""
    file: IncomingFile | None = None
    with anyio.CancelScope(shield=True):
        with contextlib.suppress(OSError):
            file = await asyncio.wrap_future(thread.submit(IncomingFile, disk, *owner))
    try:
        yield file
    finally:
        if file is not None:
            with anyio.CancelScope(shield=True):  # behind what is still being written
                await asyncio.wrap_future(thread.submit(file.close))
