"""E2B's templates: ours under E2B's names. Building new ones through E2B's builder is refused, with the reason.

Each has one tag, `default`, which is and stays on the one thing that it was built as.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import unquote
from uuid import NAMESPACE_OID, uuid5

from atoll.api.compat.e2b import shapes
from atoll.api.compat.e2b.ask import Ask, Operation
from atoll.model.errors import InvalidArgument, NotFound
from atoll.model.resources import Resources
from atoll.model.template import Template

_TAG: Final = "default"


async def list_all(ask: Ask) -> None:
    known = await ask.control.templates(ask.principal)
    await ask.answer([shapes.template(template, Resources()) for template in known])


async def list_page(ask: Ask) -> None:
    """By name; a page begins after the name that the one before ended with."""
    after = ask.query.get("nextToken", "")
    known = sorted(await ask.control.templates(ask.principal), key=lambda template: template.name)
    found = [template for template in known if template.name > after]
    page = found[: shapes.page_size(ask.query.get("limit", ""))]
    more = {"x-next-token": page[-1].name} if len(page) < len(found) else {}
    await ask.answer([shapes.template(template, Resources()) for template in page], headers=more)


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
    """Also of a snapshot, which is its owner's alone."""
    try:
        found, public = (await _find(ask, ask.path["template"])).name, True
    except NotFound:
        name = shapes.template_name(unquote(ask.path["template"]), ask.templates)
        found, public = (await ask.control.snapshots.find(ask.principal, name)).id, False
    await ask.answer({"templateID": found, "public": public})


async def tags(ask: Ask) -> None:
    shape = await _shape(ask)
    await ask.answer([{"tag": _TAG, "buildID": shape["buildID"], "createdAt": shape["createdAt"]}])


async def tags_count(ask: Ask) -> None:
    await _shape(ask)
    await ask.answer({"total": 1})


async def tag_exists(ask: Ask) -> None:
    await _shape(ask)
    tag = ask.query.get("tag", "").strip().lower()
    if not tag:
        raise InvalidArgument("tag is missing", code="invalid_query")
    await ask.answer({"exists": tag == _TAG, "normalizedTag": tag})


async def tag_groups(ask: Ask) -> None:
    assignment = _assignment(await _shape(ask))
    found = ask.query.get("search", "").lower() in _TAG and not ask.query.get("tagsCursor")
    groups = [{"tag": _TAG, "assignments": [assignment], "hasMore": False}] if found else []
    await ask.answer({"tags": groups, "nextCursor": None})


async def tag_assignments(ask: Ask) -> None:
    assignment = _assignment(await _shape(ask))
    there = unquote(ask.path["tag"]) == _TAG and not ask.query.get("cursor")
    await ask.answer({"data": [assignment] if there else [], "nextCursor": None})


def _assignment(shape: dict[str, Any]) -> dict[str, Any]:
    """Which build a tag is on, since when; it has an id of its own, which is made of both."""
    return {
        "assignmentId": str(uuid5(NAMESPACE_OID, f"{_TAG} {shape['buildID']}")),
        "buildId": shape["buildID"],
        "assignedAt": shape["createdAt"],
        "buildCreatedAt": shape["createdAt"],
        "buildFinishedAt": shape["createdAt"],
    }


async def _shape(ask: Ask) -> dict[str, Any]:
    return shapes.template(await _find(ask, ask.path["template"]), Resources())


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
    Operation("GET", "/v2/templates", list_page),
    Operation("GET", "/default-templates", list_all),
    Operation("GET", "/templates/aliases/{template}", alias),
    Operation("GET", _ONE, show),
    Operation("GET", _ONE + "/tags", tags),
    Operation("GET", _ONE + "/tags/count", tags_count),
    Operation("GET", _ONE + "/tags/exists", tag_exists),
    Operation("GET", _ONE + "/tags/groups", tag_groups),
    Operation("GET", _ONE + "/tags/{tag}/assignments", tag_assignments),
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
