"""/v1/volumes/{volume}/snapshots and /rollback: what a volume held at earlier moments."""

from __future__ import annotations

from atoll.api.endpoint import Call, Endpoint, Nothing
from atoll.api.v1.volumes import ONE as VOLUME
from atoll.model.errors import Conflict, InvalidArgument, LimitExceeded, NotFound, OutOfSpace
from atoll.wire.public import VolumeRollback, VolumeSnapshotCreate, VolumeSnapshotList, VolumeSnapshotView


async def create(call: Call[VolumeSnapshotCreate, Nothing]) -> VolumeSnapshotView:
    volumes = call.control.volumes
    volume = await volumes.find(call.principal, call.path["volume"])
    return VolumeSnapshotView.of(await volumes.snapshots.create(call.principal, volume, call.body.name))


async def list_all(call: Call[Nothing, Nothing]) -> VolumeSnapshotList:
    volumes = call.control.volumes
    found = await volumes.snapshots.list(await volumes.find(call.principal, call.path["volume"]))
    return VolumeSnapshotList(items=[VolumeSnapshotView.of(one) for one in found])


async def delete(call: Call[Nothing, Nothing]) -> None:
    volumes = call.control.volumes
    volume = await volumes.find(call.principal, call.path["volume"])
    await volumes.snapshots.delete(call.principal, volume, call.path["snapshot"])


async def rollback(call: Call[VolumeRollback, Nothing]) -> VolumeSnapshotView:
    volumes = call.control.volumes
    volume = await volumes.find(call.principal, call.path["volume"])
    return VolumeSnapshotView.of(await volumes.snapshots.rollback(call.principal, volume, call.body.snapshot))


PATH = VOLUME + "/snapshots"

ENDPOINTS = (
    Endpoint(
        "POST",
        PATH,
        "Keep what a volume holds now",
        create,
        body=VolumeSnapshotCreate,
        answer=VolumeSnapshotView,
        status=201,
        errors=(InvalidArgument, NotFound, Conflict, LimitExceeded, OutOfSpace),
    ),
    Endpoint("GET", PATH, "List the snapshots of a volume", list_all, answer=VolumeSnapshotList, errors=(NotFound,)),
    Endpoint("DELETE", PATH + "/{snapshot}", "Delete a snapshot of a volume", delete, status=204, errors=(NotFound,)),
    Endpoint(
        "POST",
        VOLUME + "/rollback",
        "Make a volume that no sandbox has what it was in a snapshot",
        rollback,
        body=VolumeRollback,
        answer=VolumeSnapshotView,
        errors=(NotFound, Conflict, OutOfSpace),
    ),
)
