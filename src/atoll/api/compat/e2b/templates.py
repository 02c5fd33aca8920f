"""E2B's templates: ours under E2B's names. Building new ones through E2B's builder is refused, with the reason."""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote

from atoll.api.compat.e2b import shapes
from atoll.api.compat.e2b.ask import Ask, Operation
from atoll.model.errors import InvalidArgument, NotFound
from atoll.model.resources import Resources
from atoll.model.template import Template


async def list_all(ask: Ask) -> None:
    known = await ask.control.templates(ask.principal)
    await ask.answer([shapes.template(template, Resources()) for template in known])


async def show(ask: Ask) -> None:
    template = await _find(ask, ask.path["template"])
    shape = shapes.template(template, Resources())
    build = {
        "buildID": shape["buildID"],
        "status": "ready",
        "createdAt": shape["createdAt"],
        "updatedAt": shape["updatedAt"],
        "cpuCount": shape["cpuCount"],
        "memoryMB": shape["memoryMB"],
        "envdVersion": shapes.AGENT_VERSION,
    }
    await ask.answer({**shape, "builds": [build]})


async def alias(ask: Ask) -> None:
    template = await _find(ask, ask.path["template"])
    await ask.answer({"templateID": template.name, "public": True})


async def tags(ask: Ask) -> None:
    template = await _find(ask, ask.path["template"])
    shape = shapes.template(template, Resources())
    await ask.answer([{"tag": "default", "buildID": shape["buildID"], "createdAt": shape["createdAt"]}])


async def _find(ask: Ask, reference: str) -> Template:
    name = shapes.template_name(unquote(reference), ask.templates)
    for template in await ask.control.templates(ask.principal):
        if template.name == name:
            return template
    raise NotFound(f"template '{unquote(reference)[:80]}' not found", code="template_not_found")


async def refuse(ask: Ask) -> None:  # noqa: ARG001 - whatever it is
    raise InvalidArgument(
        "templates cannot be built or changed through E2B's API on this server",
        code="not_supported",
        hint="Use one of the templates that `atoll template ls` shows, or start from a snapshot.",
    )


_ONE: Final = "/templates/{template}"

OPERATIONS: Final = (
    Operation("GET", "/templates", list_all),
    Operation("GET", "/v2/templates", list_all),
    Operation("GET", "/default-templates", list_all),
    Operation("GET", "/templates/aliases/{template}", alias),
    Operation("GET", _ONE, show),
    Operation("GET", _ONE + "/tags", tags),
    Operation("POST", "/v3/templates", refuse),
    Operation("POST", "/v2/templates", refuse),
    Operation("POST", "/templates", refuse),
    Operation("POST", "/templates/tags", refuse),
    Operation("DELETE", "/templates/tags", refuse),
    Operation("PATCH", _ONE, refuse),
    Operation("PATCH", "/v2" + _ONE, refuse),
    Operation("GET", _ONE + "/files/{hash}", refuse),
    Operation("POST", "/v2" + _ONE + "/builds/{build}", refuse),
    Operation("GET", _ONE + "/builds/{build}/status", refuse),
    Operation("GET", _ONE + "/builds/{build}/logs", refuse),
)
