"""What the two flavours of the SDK do differently, side by side: `async_x` and `Async…` for one, `x` for the other.

Everything else is written once, in `_async`, from which `_sync` is generated; there `async_x` becomes `x`.
"""

from __future__ import annotations

import inspect
import os
import threading
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import IO, Any, Generic, TypeVar

import anyio
import anyio.abc
import anyio.lowlevel
import anyio.to_thread

from atoll.client._config import Config
from atoll.model import limits
from atoll.model.errors import InvalidArgument

T = TypeVar("T")

Source = str | bytes | bytearray | memoryview | IO[bytes] | Iterable[bytes]
AsyncSource = Source | AsyncIterable[bytes]


class AsyncShared(Generic[T]):
    """One value per configuration and event loop: connections belong to the loop that made them."""

    def __init__(self) -> None:
        self._values: anyio.lowlevel.RunVar[dict[Config, T]] = anyio.lowlevel.RunVar("atoll-shared")

    def values(self) -> dict[Config, T]:
        try:
            return self._values.get()
        except LookupError:
            fresh: dict[Config, T] = {}
            self._values.set(fresh)
            return fresh

    def lock(self) -> AbstractContextManager[object]:
        """Nobody else runs between two awaits."""
        return nullcontext()


class Shared(Generic[T]):
    """One value per configuration and process: a forked child must not write to its parent's connections."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._values: dict[Config, T] = {}

    def values(self) -> dict[Config, T]:
        """With the lock held, if they are to be changed."""
        return self._values

    def lock(self) -> AbstractContextManager[object]:
        """One thread at a time may count users and open or close what they share."""
        if self._pid != os.getpid():
            self._begin()
        return self._lock


class AsyncBeside:
    """Runs one more thing while the body of `async with` runs; at the end of the body it is cancelled."""

    def __init__(self, work: Callable[[], Awaitable[None]]) -> None:
        self._work = work
        self._tasks: anyio.abc.TaskGroup | None = None

    async def __aenter__(self) -> None:
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._run)

    async def _run(self) -> None:
        await self._work()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._tasks is not None
        self._tasks.cancel_scope.cancel()
        try:
            return await self._tasks.__aexit__(kind, error, trace)
        except BaseExceptionGroup as group:
            # The body's own error is the one that tells; but a body that was cancelled was cancelled by the work.
            if error is not None and not isinstance(error, anyio.get_cancelled_exc_class()):
                return False
            raise group.exceptions[0] from None


class Beside:
    """The same with a thread, which is waited for: the work must end when what the body talks to has ended."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="atoll-beside", daemon=True)

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self._error = error

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            return  # a daemon thread: it ends with the connection that it uses
        self._thread.join()
        if self._error is not None:
            raise self._error


async def async_notify(callback: Callable[[str], Any] | None, text: str) -> None:
    """Tell a callback, which may be a coroutine function."""
    if callback is None or not text:
        return
    answer = callback(text)
    if inspect.isawaitable(answer):
        await answer


def notify(callback: Callable[[str], Any] | None, text: str) -> None:
    if callback is not None and text:
        callback(text)


async def async_notify_of(callback: Callable[[T], Any], value: T) -> None:
    """The same for something else than text."""
    answer = callback(value)
    if inspect.isawaitable(answer):
        await answer


def notify_of(callback: Callable[[T], Any], value: T) -> None:
    callback(value)


async def async_sleep(delay_s: float) -> None:
    await anyio.sleep(delay_s)


def sleep(delay_s: float) -> None:
    time.sleep(delay_s)


def async_shield() -> AbstractContextManager[object]:
    """What is in it is done also when the caller is being cancelled, for a bounded time."""
    return anyio.move_on_after(limits.CLIENT_GRACE_S, shield=True)


def shield() -> AbstractContextManager[object]:
    return nullcontext()


def chunks(source: Source) -> Iterator[bytes]:
    """Whatever a caller gives as content, as pieces of bounded size."""
    if isinstance(source, str):
        source = source.encode("utf-8", "surrogateescape")
    if isinstance(source, bytes | bytearray | memoryview):
        view = memoryview(source).cast("B")
        for start in range(0, len(view), limits.UPLOAD_CHUNK_BYTES):
            yield bytes(view[start : start + limits.UPLOAD_CHUNK_BYTES])
        return
    read = getattr(source, "read", None)
    pieces = iter(lambda: read(limits.UPLOAD_CHUNK_BYTES), b"") if read is not None else source
    for piece in pieces:
        if not isinstance(piece, bytes | bytearray | memoryview):
            raise InvalidArgument(
                f"content must be bytes, not {type(piece).__name__}",
                code="invalid_content",
                hint='Open files in binary mode: open(path, "rb").',
            )
        yield bytes(piece)


async def async_chunks(source: AsyncSource) -> AsyncIterator[bytes]:
    """The same; a file is read in a thread, so that a slow disk does not stop the loop."""
    if isinstance(source, AsyncIterable):
        async for piece in source:
            yield bytes(piece)
        return
    pieces = chunks(source)
    if not hasattr(source, "read"):
        for piece in pieces:
            yield piece
        return
    while (piece := await anyio.to_thread.run_sync(next, pieces, b"")) != b"":
        yield piece


async def async_next_piece(pieces: AsyncIterator[bytes]) -> bytes:
    """The next bytes of a stream; none at its end."""
    return await anext(pieces, b"")


def next_piece(pieces: Iterator[bytes]) -> bytes:
    return next(pieces, b"")
