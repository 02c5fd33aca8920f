"""/v1/evaluate: code in, everything that came of it out, in a sandbox that exists for this one call."""

from __future__ import annotations

import posixpath
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from atoll.api.endpoint import STREAMED, Call, Endpoint, Nothing, Streamed, send_reply
from atoll.api.stream import until_disconnected
from atoll.api.v1 import contexts, executionwords, guestwords
from atoll.control.service import Guest
from atoll.model import limits
from atoll.model.errors import (
    Conflict,
    DeadlineExceeded,
    GuestFailed,
    InvalidArgument,
    NotFound,
    OutOfSpace,
    TooLarge,
    Unavailable,
)
from atoll.model.sandbox import DEFAULT_TEMPLATE, SandboxSpec
from atoll.wire import guest
from atoll.wire.public.contexts import (
    EvaluationStart,
    EvaluationView,
    ExecutionCleared,
    ExecutionEnded,
    ExecutionError,
    ExecutionEvent,
    ExecutionOutput,
    ExecutionResult,
)
from atoll.wire.public.sandboxes import ResourcesBody

_SPARE_S = 60  # the sandbox outlives its code, so that the code's own end is the one that is told
_DEPTH = 8


async def evaluate(call: Call[EvaluationStart, Nothing]) -> Streamed:
    """A caller who leaves ends it: nobody could read the answer."""
    for path in call.body.files:
        check_path(path)

    async def work() -> None:
        async with call.control.evaluation(call.principal, spec_of(call.body)) as sandbox:
            view = await _evaluated(sandbox, call.body)
        await send_reply(view, 200, call.send)

    await until_disconnected(call.receive, work)
    return STREAMED


def spec_of(body: EvaluationStart) -> SandboxSpec:
    return SandboxSpec(
        template=body.template or DEFAULT_TEMPLATE,
        env=body.env,
        resources=(body.resources or ResourcesBody()).resources(),
        timeout_s=body.timeout_s + _SPARE_S,
    )


def check_path(path: str) -> None:
    """A file that is sent along stays in the working directory."""
    clean = posixpath.normpath(path)
    if not path or "\0" in path or posixpath.isabs(path) or clean.startswith("..") or clean == ".":
        raise InvalidArgument(f"{path[:100]!r} is not a relative path", code="invalid_path")


async def _evaluated(sandbox: Guest, body: EvaluationStart) -> EvaluationView:
    for path, content in body.files.items():
        await _write(sandbox, f"~/{posixpath.normpath(path)}", content)
    params: dict[str, Any] = {"context": body.language[:64], "code": body.code, "timeout_s": body.timeout_s}
    if body.stdin is not None:
        params["stdin"] = body.stdin
    view = EvaluationView(
        stdout="",
        stderr="",
        exit_code=1,
        status="died",
        results=[],
        error=None,
        files={},
        files_left_out=[],
        duration_s=0.0,
        truncated=False,
    )
    async with contexts.run(sandbox, params) as stream, aclosing(executionwords.events(stream)) as events:
        await _collect(events, view)
    await _take_files(sandbox, body.files, view)
    return view


async def _collect(events: AsyncGenerator[ExecutionEvent, None], view: EvaluationView) -> None:
    output: dict[str, list[str]] = {"stdout": [], "stderr": []}
    async for event in events:
        if isinstance(event, ExecutionOutput):
            output[event.stream].append(event.text)
        elif isinstance(event, ExecutionResult):
            _show(event, view.results)
        elif isinstance(event, ExecutionCleared):
            output = {"stdout": [], "stderr": []}
            view.results.clear()
        elif isinstance(event, ExecutionError):
            view.error = event
        elif isinstance(event, ExecutionEnded):
            view.status, view.exit_code = event.status, event.exit_code
            view.duration_s, view.truncated = event.duration_s, event.truncated
    view.stdout, view.stderr = "".join(output["stdout"]), "".join(output["stderr"])


def _show(event: ExecutionResult, results: list[ExecutionResult]) -> None:
    if not event.update:
        results.append(event)
        return
    for place, old in enumerate(results):
        if old.display_id == event.display_id:
            results[place] = event


async def _write(sandbox: Guest, path: str, content: bytes) -> None:
    async with sandbox.stream("file.write", {"path": path, "size": len(content)}) as stream:
        await stream.send(content)
        await stream.commit()
        async for message in stream:
            if isinstance(message, guest.Ok | guest.End):
                return
    raise guestwords.ended_early()


async def _take_files(sandbox: Guest, given: Mapping[str, bytes], view: EvaluationView) -> None:
    """What is in the working directory and was not put there; hidden files are the interpreters' own business."""
    params = {"path": "~", "depth": _DEPTH, "entries_max": 10_000, "hidden": False}
    async with sandbox.stream("file.list", params) as stream:
        found = [guestwords.file(entry) async for entry in guestwords.entries(stream, 10_001)]
    if not found:
        return  # most code makes no file, and need not wait for another question
    home = guestwords.file(await sandbox.call("file.stat", {"path": "~"})).path
    left_bytes = limits.EVALUATION_FILES_BYTES_MAX
    sent = {posixpath.normpath(path): content for path, content in given.items()}
    for entry in found:
        name = posixpath.relpath(entry.path, home)
        if entry.type != "file" or any(part.startswith(".") for part in name.split("/")):
            continue
        if entry.size > left_bytes or len(view.files) >= limits.EVALUATION_FILES_MAX:
            view.files_left_out = [*view.files_left_out, name][: limits.EVALUATION_FILES_MAX]
            continue
        content = await _read(sandbox, entry.path, left_bytes)
        if sent.get(name) != content:
            view.files[name] = content
            left_bytes -= len(content)


async def _read(sandbox: Guest, path: str, bytes_max: int) -> bytes:
    content = bytearray()
    async with sandbox.stream("file.read", {"path": path, "length": bytes_max}) as stream:
        async for message in stream:
            if isinstance(message, guest.Data):
                content += message.payload
                if len(content) > bytes_max:
                    raise GuestFailed("the sandbox sent more of a file than was asked for")
    return bytes(content)


ENDPOINTS = (
    Endpoint(
        "POST",
        "/v1/evaluate",
        "Run code in a sandbox of its own and throw that away",
        evaluate,
        body=EvaluationStart,
        answer=EvaluationView,
        errors=(NotFound, Conflict, TooLarge, Unavailable, GuestFailed, DeadlineExceeded, OutOfSpace),
    ),
)
