"""/v1/snapshots as files: one out, to be kept or carried to another server; and one in, as if an enemy had made it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import anyio
import msgspec

from atoll.api.endpoint import STREAMED, Call, Endpoint, Nothing, Streamed
from atoll.api.stream import body_chunks, until_disconnected
from atoll.api.v1.filecontent import RAW
from atoll.api.v1.snapshots import ONE, PATH
from atoll.control.service import SnapshotSpec
from atoll.model import limits
from atoll.model.errors import (
    Conflict,
    DeadlineExceeded,
    Forbidden,
    InvalidArgument,
    LimitExceeded,
    NotFound,
    OutOfSpace,
    TooLarge,
)
from atoll.wire.public import SnapshotView


class ExportQuery(msgspec.Struct, forbid_unknown_fields=True):
    """With `memory=false` the disk alone."""

    memory: bool = True


class ImportQuery(msgspec.Struct, forbid_unknown_fields=True):
    """What the snapshot is called here and when it expires; with `memory=false` the memory in the file is left out."""

    name: str | None = None
    memory: bool = True
    expires_s: float | None = None


async def export(call: Call[Nothing, ExportQuery]) -> Streamed:
    async def work() -> None:
        async with call.control.transfers.export(
            call.principal, call.path["snapshot"], memory=call.query.memory
        ) as chunks:
            await _send(call, chunks)

    await until_disconnected(call.receive, work)
    return STREAMED


async def _send(call: Call[Nothing, ExportQuery], chunks: AsyncIterator[bytes]) -> None:
    """The answer begins with the first bytes, so that what fails before them has a status of its own."""
    begun = False
    async for chunk in chunks:
        with _moving():
            if not begun:
                headers = [(b"content-type", RAW.encode("ascii")), (b"cache-control", b"no-store")]
                await call.send({"type": "http.response.start", "status": 200, "headers": headers})
                begun = True
            await call.send({"type": "http.response.body", "body": chunk, "more_body": True})
    await call.send({"type": "http.response.body", "body": b""})


async def import_(call: Call[Nothing, ImportQuery]) -> SnapshotView:
    query = call.query
    spec = SnapshotSpec(name=query.name, memory=query.memory, expires_s=query.expires_s)
    return SnapshotView.of(await call.control.transfers.import_(call.principal, spec, _received(call)))


async def _received(call: Call[Nothing, ImportQuery]) -> AsyncIterator[bytes]:
    chunks = body_chunks(call.receive)
    while True:
        with _moving():
            chunk = await anext(chunks, None)
        if chunk is None:
            return
        yield chunk


@contextmanager
def _moving() -> Iterator[None]:
    """While the other end has to move: one that stands still holds a place that others wait for."""
    try:
        with anyio.fail_after(limits.TRANSFER_STALL_S_MAX):
            yield
    except TimeoutError:
        raise DeadlineExceeded("nothing has moved for too long", code="transfer_stalled") from None


ENDPOINTS = (
    Endpoint(
        "GET",
        ONE + "/export",
        "Export a snapshot as one file",
        export,
        query=ExportQuery,
        gives={RAW: None},
        errors=(InvalidArgument, NotFound, Conflict, LimitExceeded, TooLarge),
    ),
    Endpoint(
        "POST",
        PATH,
        "Import a snapshot from a file",
        import_,
        query=ImportQuery,
        takes=RAW,
        answer=SnapshotView,
        status=201,
        errors=(
            InvalidArgument,
            Forbidden,
            Conflict,
            LimitExceeded,
            TooLarge,
            OutOfSpace,
            DeadlineExceeded,
        ),
    ),
)
