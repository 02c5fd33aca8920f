"""E2B's volumes: made, listed and deleted. What is in them is the matter of `volumecontent`."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import unquote

import msgspec

from atoll.api.compat.e2b.ask import Ask, Operation
from atoll.model.volume import Volume


class NewVolume(msgspec.Struct):
    name: str


def shape(volume: Volume) -> dict[str, Any]:
    return {"volumeID": volume.id, "name": volume.name}


def with_token(ask: Ask, volume: Volume) -> dict[str, Any]:
    """With what opens its files as far as the caller's key would."""
    return {**shape(volume), "token": ask.control.volumes.tokens.mint(volume.id, writes=ask.may_write)}


async def create(ask: Ask) -> None:
    asked = await ask.body(NewVolume)
    volume = await ask.control.volumes.create(ask.principal, asked.name, None)
    await ask.answer(with_token(ask, volume), 201)


async def list_all(ask: Ask) -> None:
    await ask.answer([shape(volume) for volume in await ask.control.volumes.list(ask.principal)])


async def show(ask: Ask) -> None:
    volume = await ask.control.volumes.find(ask.principal, unquote(ask.path["volume"]))
    await ask.answer(with_token(ask, volume))


async def delete(ask: Ask) -> None:
    await ask.control.volumes.delete(ask.principal, unquote(ask.path["volume"]))
    await ask.answer(None, 204)


_ONE: Final = "/volumes/{volume}"

OPERATIONS: Final = (
    Operation("POST", "/volumes", create),
    Operation("GET", "/volumes", list_all),
    Operation("GET", _ONE, show),
    Operation("DELETE", _ONE, delete),
)
