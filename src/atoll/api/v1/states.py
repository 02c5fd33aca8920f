"""/v1/sandboxes/{sandbox}: standby, pause, resume, roll back and fork."""

from __future__ import annotations

from atoll.api.endpoint import Call, Endpoint, Nothing
from atoll.api.errors import problem_of
from atoll.api.v1.sandboxes import ONE
from atoll.model.errors import Conflict, InvalidArgument, LimitExceeded, NotFound, OutOfSpace, Unavailable
from atoll.wire.public import (
    ForkList,
    ForkView,
    SandboxFork,
    SandboxPause,
    SandboxResume,
    SandboxRollback,
    SandboxView,
)


async def standby(call: Call[Nothing, Nothing]) -> SandboxView:
    return SandboxView.of(await call.control.states.standby(call.principal, call.path["sandbox"]))


async def pause(call: Call[SandboxPause, Nothing]) -> SandboxView:
    states = call.control.states
    return SandboxView.of(await states.pause(call.principal, call.path["sandbox"], memory=call.body.memory))


async def resume(call: Call[SandboxResume, Nothing]) -> SandboxView:
    states = call.control.states
    body = call.body
    return SandboxView.of(await states.resume(call.principal, call.path["sandbox"], body.timeout_s, memory=body.memory))


async def rollback(call: Call[SandboxRollback, Nothing]) -> SandboxView:
    snapshot = await call.control.snapshots.find(call.principal, call.body.snapshot)
    return SandboxView.of(await call.control.states.rollback(call.principal, call.path["sandbox"], snapshot))


async def fork(call: Call[SandboxFork, Nothing]) -> ForkList:
    made = await call.control.snapshots.fork(call.principal, call.path["sandbox"], call.body.count, call.body.timeout_s)
    return ForkList(
        items=[
            ForkView(
                sandbox=SandboxView.of(one.sandbox) if one.sandbox else None,
                problem=problem_of(one.error, call.request_id) if one.error else None,
            )
            for one in made
        ]
    )


_ERRORS = (InvalidArgument, NotFound, Conflict, LimitExceeded, Unavailable, OutOfSpace)

ENDPOINTS = (
    Endpoint(
        "POST",
        ONE + "/standby",
        "Freeze a sandbox; the next call wakes it",
        standby,
        answer=SandboxView,
        errors=(NotFound, Conflict, Unavailable),
    ),
    Endpoint(
        "POST",
        ONE + "/pause",
        "Put a sandbox on disk; one that is paused is shown as it is",
        pause,
        body=SandboxPause,
        answer=SandboxView,
        errors=_ERRORS,
    ),
    Endpoint(
        "POST",
        ONE + "/resume",
        "Wake a sandbox; one that runs is shown as it is",
        resume,
        body=SandboxResume,
        answer=SandboxView,
        errors=_ERRORS,
    ),
    Endpoint(
        "POST",
        ONE + "/rollback",
        "Take a sandbox back to an earlier snapshot of itself",
        rollback,
        body=SandboxRollback,
        answer=SandboxView,
        errors=_ERRORS,
    ),
    Endpoint(
        "POST",
        ONE + "/fork",
        "Make live copies of a sandbox, each with an identity of its own",
        fork,
        body=SandboxFork,
        answer=ForkList,
        status=201,
        errors=_ERRORS,
    ),
)
