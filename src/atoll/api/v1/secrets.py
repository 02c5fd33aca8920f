"""/v1/secrets: keep, list, show and remove secrets; never a value in an answer."""

from __future__ import annotations

from atoll.api.endpoint import Call, Endpoint, Nothing
from atoll.model.errors import InvalidArgument, LimitExceeded, NotFound
from atoll.wire.public.secrets import SecretList, SecretPut, SecretView


async def put(call: Call[SecretPut, Nothing]) -> SecretView:
    kept = await call.control.secrets.put(call.principal, call.body.secret(call.path["secret"]), call.body.value)
    await call.control.policies.secret_changed(call.principal, kept, "secret.kept")
    return SecretView.of(kept)


async def show(call: Call[Nothing, Nothing]) -> SecretView:
    return SecretView.of(await call.control.secrets.get(call.principal, call.path["secret"]))


async def list_all(call: Call[Nothing, Nothing]) -> SecretList:
    return SecretList(items=[SecretView.of(one) for one in await call.control.secrets.list(call.principal)])


async def remove(call: Call[Nothing, Nothing]) -> None:
    await call.control.secrets.remove(call.principal, call.path["secret"])
    await call.control.policies.secret_changed(call.principal, call.path["secret"], "secret.removed")


PATH = "/v1/secrets"
ONE = "/v1/secrets/{secret}"

ENDPOINTS = (
    Endpoint("GET", PATH, "List secrets, without their values", list_all, answer=SecretList),
    Endpoint(
        "PUT",
        ONE,
        "Keep a secret, or change one",
        put,
        body=SecretPut,
        answer=SecretView,
        errors=(InvalidArgument, NotFound, LimitExceeded),
    ),
    Endpoint("GET", ONE, "Show a secret, without its value", show, answer=SecretView, errors=(NotFound,)),
    Endpoint("DELETE", ONE, "Remove a secret", remove, errors=(NotFound,)),
)
