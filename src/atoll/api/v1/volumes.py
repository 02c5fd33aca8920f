"""/v1/volumes: create, clone, list, show, delete."""

from __future__ import annotations

from atoll.api.endpoint import Call, Endpoint, Nothing
from atoll.model.errors import Conflict, InvalidArgument, LimitExceeded, NotFound, Unavailable
from atoll.wire.public import VolumeCreate, VolumeList, VolumeView


async def create(call: Call[VolumeCreate, Nothing]) -> VolumeView:
    body = call.body
    volumes = call.control.volumes
    return VolumeView.of(await volumes.create(call.principal, body.name, body.size_bytes, body.source, body.snapshot))


async def list_all(call: Call[Nothing, Nothing]) -> VolumeList:
    return VolumeList(items=[VolumeView.of(one) for one in await call.control.volumes.list(call.principal)])


async def show(call: Call[Nothing, Nothing]) -> VolumeView:
    return VolumeView.of(await call.control.volumes.find(call.principal, call.path["volume"]))


async def delete(call: Call[Nothing, Nothing]) -> None:
    await call.control.volumes.delete(call.principal, call.path["volume"])


PATH = "/v1/volumes"
ONE = PATH + "/{volume}"

ENDPOINTS = (
    Endpoint(
        "POST",
        PATH,
        "Make a volume, empty, or a clone of another or of its snapshot",
        create,
        body=VolumeCreate,
        answer=VolumeView,
        status=201,
        errors=(InvalidArgument, NotFound, Conflict, LimitExceeded, Unavailable),
    ),
    Endpoint("GET", PATH, "List volumes, by name", list_all, answer=VolumeList),
    Endpoint("GET", ONE, "Show a volume, by id or name", show, answer=VolumeView, errors=(NotFound,)),
    Endpoint(
        "DELETE",
        ONE,
        "Delete a volume that no sandbox has, with its snapshots",
        delete,
        status=204,
        errors=(NotFound, Conflict),
    ),
)
