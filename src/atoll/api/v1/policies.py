"""/v1/sandboxes/{sandbox}/policy and /network: what a sandbox may reach, what it did there, what it waits for."""

from __future__ import annotations

import msgspec

from atoll.api.endpoint import Call, Endpoint, Nothing
from atoll.model.errors import Conflict, InvalidArgument, NotFound
from atoll.wire.public.policies import (
    AskAnswer,
    AskView,
    EgressLists,
    NetworkView,
    PolicyBody,
    PolicyTest,
    PolicyTested,
    PolicyView,
    SandboxSecrets,
)


class NetworkQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Events after this number only; 0 gives all that are kept."""

    after: int = 0


async def show(call: Call[Nothing, Nothing]) -> PolicyView:
    network = await call.control.policies.get(call.principal, call.path["sandbox"])
    return PolicyView.of(network.policy, network.secrets, network.enforced)


async def change(call: Call[PolicyBody, Nothing]) -> PolicyView:
    network = await call.control.policies.set(call.principal, call.path["sandbox"], call.body.policy())
    return PolicyView.of(network.policy, network.secrets, network.enforced)


async def change_secrets(call: Call[SandboxSecrets, Nothing]) -> PolicyView:
    names = tuple(call.body.secrets)
    network = await call.control.policies.set_secrets(call.principal, call.path["sandbox"], names)
    return PolicyView.of(network.policy, network.secrets, network.enforced)


async def test(call: Call[PolicyTest, Nothing]) -> PolicyTested:
    asked = (call.path["sandbox"], call.body.url, call.body.method)
    return PolicyTested.of(await call.control.policies.test(call.principal, *asked))


async def network(call: Call[Nothing, NetworkQuery]) -> NetworkView:
    return NetworkView.of(await call.control.policies.status(call.principal, call.path["sandbox"], call.query.after))


async def answer(call: Call[AskAnswer, Nothing]) -> AskView:
    ask = await call.control.policies.answer(call.principal, call.path["sandbox"], call.path["ask"], call.body.answer)
    return AskView(id=ask.id, host=ask.host, port=ask.port, asked_at=ask.asked_at)


async def lists(call: Call[Nothing, Nothing]) -> EgressLists:
    return EgressLists(lists={name: list(hosts) for name, hosts in call.control.policies.lists.items()})


POLICY = "/v1/sandboxes/{sandbox}/policy"
NETWORK = "/v1/sandboxes/{sandbox}/network"
_ERRORS = (InvalidArgument, NotFound, Conflict)

ENDPOINTS = (
    Endpoint("GET", POLICY, "Show what a sandbox may reach", show, answer=PolicyView, errors=(NotFound,)),
    Endpoint(
        "PUT", POLICY, "Change what a sandbox may reach", change, body=PolicyBody, answer=PolicyView, errors=_ERRORS
    ),
    Endpoint(
        "POST",
        POLICY + "/test",
        "Say what would happen to a connection, and by which rule",
        test,
        body=PolicyTest,
        answer=PolicyTested,
        errors=_ERRORS,
    ),
    Endpoint(
        "PUT",
        "/v1/sandboxes/{sandbox}/secrets",
        "Change which secrets a sandbox has",
        change_secrets,
        body=SandboxSecrets,
        answer=PolicyView,
        errors=_ERRORS,
    ),
    Endpoint(
        "GET",
        NETWORK,
        "Show a sandbox's traffic, its open questions and its latest connections",
        network,
        query=NetworkQuery,
        answer=NetworkView,
        errors=(NotFound, Conflict),
    ),
    Endpoint(
        "POST",
        NETWORK + "/asks/{ask}",
        "Answer a connection that waits for a person's word",
        answer,
        body=AskAnswer,
        answer=AskView,
        errors=_ERRORS,
    ),
    Endpoint("GET", "/v1/egress-lists", "Show the operator's lists of hosts", lists, answer=EgressLists),
)
