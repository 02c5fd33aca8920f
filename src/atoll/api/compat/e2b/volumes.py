"""E2B's volumes: made, listed and deleted. What is in them is reached by mounting them into a sandbox."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import unquote

import msgspec

from atoll.api.compat.e2b.ask import Ask, Operation
from atoll.model.errors import InvalidArgument
from atoll.model.volume import Volume


class NewVolume(msgspec.Struct):
    name: str


def shape(volume: Volume) -> dict[str, Any]:
    return {"volumeID": volume.id, "name": volume.name}


async def create(ask: Ask) -> None:
    asked = await ask.body(NewVolume)
    volume = await ask.control.volumes.create(ask.principal, asked.name, None)
    await ask.answer({**shape(volume), "token": ""}, 201)


async def list_all(ask: Ask) -> None:
    await ask.answer([shape(volume) for volume in await ask.control.volumes.list(ask.principal)])


async def show(ask: Ask) -> None:
    volume = await ask.control.volumes.find(ask.principal, unquote(ask.path["volume"]))
    await ask.answer({**shape(volume), "token": ""})


async def delete(ask: Ask) -> None:
    await ask.control.volumes.delete(ask.principal, unquote(ask.path["volume"]))
    await ask.answer(None, 204)


async def refuse_content(ask: Ask) -> None:  # noqa: ARG001 - whatever it is
    raise InvalidArgument(
        "the content of a volume is not reached from outside on this server",
        code="not_supported",
        hint="Mount the volume into a sandbox and use its files.",
    )


async def refuse_secrets(ask: Ask) -> None:  # noqa: ARG001 - whatever it is
    raise InvalidArgument(
        "secrets of E2B are not kept on this server",
        code="not_supported",
        hint="A secret of this server is bound to its hosts: `atoll secret set`.",
    )


_ONE: Final = "/volumes/{volume}"
_CONTENT: Final = "/volumecontent/{volume}"

OPERATIONS: Final = (
    Operation("POST", "/volumes", create),
    Operation("GET", "/volumes", list_all),
    Operation("GET", _ONE, show),
    Operation("DELETE", _ONE, delete),
    *(
        Operation(method, f"{_CONTENT}/{kind}", refuse_content)
        for kind in ("dir", "file", "path")
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE")
    ),
    *(Operation(method, "/secrets", refuse_secrets) for method in ("GET", "POST")),
    *(Operation(method, "/secrets/{secret}", refuse_secrets) for method in ("GET", "POST", "DELETE")),
)
