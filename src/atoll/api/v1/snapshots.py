"""/v1/snapshots: take, list, show, delete."""

from __future__ import annotations

import msgspec

from atoll.api.endpoint import Call, Endpoint, Nothing
from atoll.api.v1.sandboxes import ONE as SANDBOX
from atoll.control.service import SnapshotSpec
from atoll.model import limits
from atoll.model.errors import Conflict, InvalidArgument, LimitExceeded, NotFound, OutOfSpace, TooLarge, Unavailable
from atoll.wire.public import (
    DiskChangeView,
    FileRestore,
    FileRestored,
    SnapshotCreate,
    SnapshotDiff,
    SnapshotPage,
    SnapshotSpace,
    SnapshotView,
)


class ListQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which snapshots to list: of one sandbox, or all."""

    sandbox: str | None = None
    limit: int = limits.PAGE_ITEMS_DEFAULT
    cursor: str | None = None


class DiffQuery(msgspec.Struct, forbid_unknown_fields=True):
    """What to compare with: the id of a later snapshot, or a sandbox as it is now."""

    against: str


async def take(call: Call[SnapshotCreate, Nothing]) -> SnapshotView:
    body = call.body
    spec = SnapshotSpec(name=body.name, memory=body.memory, expires_s=body.expires_s, keep_last=body.keep_last)
    return SnapshotView.of(await call.control.snapshots.take(call.principal, call.path["sandbox"], spec))


async def list_page(call: Call[Nothing, ListQuery]) -> SnapshotPage:
    query = call.query
    items, following = await call.control.snapshots.page(call.principal, query.sandbox, query.cursor, query.limit)
    return SnapshotPage(items=[SnapshotView.of(one) for one in items], next=following)


async def show(call: Call[Nothing, Nothing]) -> SnapshotView:
    return SnapshotView.of(await call.control.snapshots.find(call.principal, call.path["snapshot"]))


async def diff(call: Call[Nothing, DiffQuery]) -> SnapshotDiff:
    found = await call.control.snapshots.diff(call.principal, call.path["snapshot"], call.query.against)
    items = [DiskChangeView(path=one.path, change=one.change, type=one.type, size=one.size) for one in found.items]
    return SnapshotDiff(items=items, truncated=found.truncated)


async def space(call: Call[Nothing, Nothing]) -> SnapshotSpace:
    found = await call.control.snapshots.space(call.principal, call.path["snapshot"])
    return SnapshotSpace(own_bytes=found.own_bytes, shared_bytes=found.shared_bytes)


async def restore(call: Call[FileRestore, Nothing]) -> FileRestored:
    body = call.body
    size = await call.control.snapshots.file_restore(call.principal, body.snapshot, call.path["sandbox"], body.path)
    return FileRestored(path=body.path, size=size)


async def delete(call: Call[Nothing, Nothing]) -> None:
    await call.control.snapshots.delete(call.principal, call.path["snapshot"])


PATH = "/v1/snapshots"
ONE = PATH + "/{snapshot}"

ENDPOINTS = (
    Endpoint(
        "POST",
        SANDBOX + "/snapshots",
        "Take a snapshot of a sandbox, which goes on",
        take,
        body=SnapshotCreate,
        answer=SnapshotView,
        status=201,
        errors=(InvalidArgument, NotFound, Conflict, LimitExceeded, Unavailable, OutOfSpace),
    ),
    Endpoint(
        "GET",
        PATH,
        "List snapshots, newest first",
        list_page,
        query=ListQuery,
        answer=SnapshotPage,
        errors=(InvalidArgument, NotFound),
    ),
    Endpoint("GET", ONE, "Show a snapshot, by id or name", show, answer=SnapshotView, errors=(NotFound,)),
    Endpoint(
        "GET",
        ONE + "/diff",
        "Show what changed on the disk since a snapshot",
        diff,
        query=DiffQuery,
        answer=SnapshotDiff,
        errors=(InvalidArgument, NotFound, Conflict, TooLarge),
    ),
    Endpoint(
        "GET",
        ONE + "/space",
        "Show what a snapshot takes on the disk, its own and shared",
        space,
        answer=SnapshotSpace,
        errors=(NotFound, Conflict),
    ),
    Endpoint(
        "POST",
        SANDBOX + "/restore",
        "Put one file of a snapshot back into a sandbox",
        restore,
        body=FileRestore,
        answer=FileRestored,
        errors=(InvalidArgument, NotFound, Conflict, OutOfSpace),
    ),
    Endpoint(
        "DELETE",
        ONE,
        "Delete a snapshot; what was made from it is not touched",
        delete,
        status=204,
        errors=(NotFound,),
    ),
)
