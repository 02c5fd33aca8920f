"""The description of the API (OpenAPI 3.1), drawn from the endpoints and the types that they name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from atoll.api.endpoint import Endpoint, Nothing
from atoll.api.errors import MEDIA_TYPE
from atoll.model.errors import (
    AtollError,
    Forbidden,
    GuestFailed,
    Internal,
    InvalidArgument,
    LimitExceeded,
    TooLarge,
    Unauthenticated,
    Unavailable,
)
from atoll.wire.public import Problem

_ADMISSION = {Unauthenticated, Forbidden, LimitExceeded}  # `authn.admit`: a key, its scope, its rate
_WAKING = {
    InvalidArgument,
    Unavailable,
}  # what is inside refuses values of its own; a sandbox may have to wake up first
_REF = "#/components/schemas/{name}"
_PATH_PARAMETERS = {
    "context": "The context: its id, or a language for the default one of that.",
    "execution": "The execution: its id.",
    "key": "The key: its id.",
    "member": "The member: its id or its name.",
    "tenant": "The tenant: its name.",
    "webhook": "The webhook: its id.",
    "sandbox": "The sandbox: its id, or its name while it lives.",
    "port": "The number of a port inside the sandbox.",
    "process": "The process: its id, its number (pid) inside the sandbox, or `tag:` and its tag.",
    "ask": "The question: its id, as the network shows it.",
    "secret": "The name of a secret.",
    "snapshot": "The snapshot: its id or its name.",
    "volume": "The volume: its id or its name.",
}


def document(endpoints: Iterable[Endpoint[Any, Any]], version: str) -> dict[str, Any]:
    """The whole description."""
    endpoints = list(endpoints)
    types = _types(endpoints)
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    by_type = dict(zip(types, schemas, strict=True))
    paths: dict[str, Any] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, by_type, components)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Atoll",
            "version": version,
            "description": "Isolated Linux computers for agents. Errors are problem+json with a stable `code`.",
        },
        "security": [{"bearer": []}, {"header": []}],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(components.items())),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
            },
        },
    }


def _types(endpoints: list[Endpoint[Any, Any]]) -> list[Any]:
    found: dict[Any, None] = {Problem: None}
    for endpoint in endpoints:
        for kind in (endpoint.body, endpoint.answer, *endpoint.gives.values()):
            if kind is not None and kind is not Nothing:
                found[kind] = None
    return list(found)


def _operation(endpoint: Endpoint[Any, Any], by_type: dict[Any, Any], components: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": _operation_id(endpoint),
        "summary": endpoint.summary,
        "parameters": _path_parameters(endpoint.path) + _query_parameters(endpoint, components),
        "responses": _responses(endpoint, by_type),
    }
    if endpoint.public:
        operation["security"] = []
    if endpoint.takes:
        operation["requestBody"] = {"required": True, "content": {endpoint.takes: _bytes()}}
    elif endpoint.body is not Nothing:
        content = {"application/json": {"schema": by_type[endpoint.body]}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _responses(endpoint: Endpoint[Any, Any], by_type: dict[Any, Any]) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    if endpoint.gives:
        content = {name: {"schema": by_type[kind]} if kind else _bytes() for name, kind in endpoint.gives.items()}
        responses["200"] = {"description": "A stream.", "content": content}
    if endpoint.answer is not None:
        schema = {"application/json": {"schema": by_type[endpoint.answer]}}
        responses[str(endpoint.status)] = {"description": "Done.", "content": schema}
    if not responses:
        responses["204"] = {"description": "Done."}
    problem = {MEDIA_TYPE: {"schema": by_type[Problem]}}
    for kind in sorted(_errors(endpoint), key=lambda kind: kind.http_status):
        responses[str(kind.http_status)] = {"description": f"{kind.__name__}.", "content": problem}
    return responses


def _errors(endpoint: Endpoint[Any, Any]) -> set[type[AtollError]]:
    """What it may answer: the endpoint's own words, and what holds for all that are like it."""
    found: set[type[AtollError]] = {Internal, *endpoint.errors}
    if not endpoint.public:
        found |= _ADMISSION
    if endpoint.body is not Nothing:
        found |= {InvalidArgument, TooLarge}
    if endpoint.query is not Nothing:
        found.add(InvalidArgument)
    return found | _WAKING if GuestFailed in endpoint.errors else found


def _path_parameters(path: str) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": _PATH_PARAMETERS[name],
            "schema": {"type": "string"},
        }
        for name in re.findall(r"\{(\w+)\}", path)
    ]


def _query_parameters(endpoint: Endpoint[Any, Any], components: dict[str, Any]) -> list[dict[str, Any]]:
    if endpoint.query is Nothing:
        return []
    # Parameters are described in place: a query is no component, and two modules may each have a ListQuery.
    _, own = msgspec.json.schema_components([endpoint.query], ref_template=_REF)
    schema = own.pop(endpoint.query.__name__)
    components.update(own)
    required = schema.get("required", [])
    return [
        {"name": name, "in": "query", "required": name in required, "schema": value}
        for name, value in schema["properties"].items()
    ]


def _bytes() -> dict[str, Any]:
    return {"schema": {"type": "string", "format": "binary"}}


def _operation_id(endpoint: Endpoint[Any, Any]) -> str:
    words = [word for word in re.split(r"[/{}]+", endpoint.path) if word and word not in ("v1", "sandbox", "process")]
    tail = "_one" if endpoint.path.endswith("}") else ""
    return "_".join([endpoint.method.lower(), *words]).replace(".", "_") + tail
