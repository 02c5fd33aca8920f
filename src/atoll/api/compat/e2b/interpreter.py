"""E2B's code interpreter: code and contexts, translated to ours. Answers are JSON objects, one a line."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import anyio
import msgspec

from atoll.api.compat.e2b.ask import Ask, Operation, without_none
from atoll.api.stream import until_disconnected
from atoll.api.v1 import contexts, executionwords
from atoll.model import limits
from atoll.model.errors import AtollError, Internal, InvalidArgument, NotFound
from atoll.wire import codec
from atoll.wire.public.contexts import (
    ContextView,
    ExecutionEnded,
    ExecutionError,
    ExecutionEvent,
    ExecutionOutput,
    ExecutionResult,
)

_LANGUAGES: Final = {"js": "javascript", "ts": "typescript", "py": "python", "python3": "python"}
_FORMS: Final = ("html", "markdown", "svg", "png", "jpeg", "pdf", "latex", "json", "javascript", "data", "chart")
_END: Final = {"type": "end_of_execution"}
_KEEPALIVE: Final = {"type": "keepalive"}


class Execute(msgspec.Struct):
    code: str
    context_id: str | None = None
    language: str | None = None
    env_vars: dict[str, str] | None = None


class NewContext(msgspec.Struct):
    language: str | None = None
    cwd: str | None = None


def language_of(asked: str | None) -> str:
    name = (asked or "python").strip().lower()
    return _LANGUAGES.get(name, name)


def run_params(asked: Execute) -> dict[str, Any]:
    if asked.context_id and asked.language:
        raise InvalidArgument("Only one of context_id or language can be provided")
    context = asked.context_id[:64] if asked.context_id else language_of(asked.language)
    return {"context": context, "code": asked.code, "env": asked.env_vars or {}, "interrupt_on_disconnect": True}


def lines_of(event: ExecutionEvent, now: datetime) -> list[dict[str, Any]]:
    """What E2B's interpreter says for one event of ours; for some nothing."""
    if isinstance(event, ExecutionOutput):
        return [{"type": event.stream, "text": event.text, "timestamp": now.isoformat()}]
    if isinstance(event, ExecutionResult):
        return [] if event.update else [result(event)]
    if isinstance(event, ExecutionError):
        return [{"type": "error", "name": event.name, "value": event.value, "traceback": event.traceback}]
    if isinstance(event, ExecutionEnded):
        counted = event.execution_count is not None
        count = [{"type": "number_of_executions", "execution_count": event.execution_count}] if counted else []
        return [*count, _END]
    return []


def result(event: ExecutionResult) -> dict[str, Any]:
    forms = {name: getattr(event, name) for name in _FORMS}
    if event.data is not None:
        forms["data"] = event.data.get("columns", event.data)  # E2B has a table's columns and nothing about it
    text = None if event.text is None else unquoted(event.text)
    return without_none(
        {"type": "result", "is_main_result": event.main, "text": text, **forms, "extra": event.extra or None}
    )


def unquoted(text: str) -> str:
    """A text without the quotes that Python shows it in."""
    return text[1:-1] if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"" else text


async def execute(ask: Ask) -> None:
    asked = await ask.body(Execute)
    params = run_params(asked)
    inside = await ask.guest()

    async def work() -> None:
        async with contexts.run(inside, params) as stream:
            lines = _Lines(ask)
            events = executionwords.events(stream)
            await anext(events)  # it has its place in the queue; what is wrong with the request was said before
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lines.keep_alive)
                async for event in events:
                    await lines.send(lines_of(event, datetime.now(UTC)))
                tasks.cancel_scope.cancel()
            await lines.end()

    try:
        await until_disconnected(ask.receive, work)
    except (NotFound, InvalidArgument) as error:
        raise _no_context(error, asked.context_id) if asked.context_id else _no_kernel(error) from error


def _no_context(error: AtollError, context_id: str) -> AtollError:
    """A name that is no context's is taken for a language inside, whose usual context it would be."""
    if error.code in ("not_found", "no_such_context", "unsupported"):
        return NotFound(f"Context {context_id[:64]} not found")
    return error


def _no_kernel(error: AtollError) -> AtollError:
    """A language that is not there: for E2B's interpreter a kernel that does not start."""
    return Internal(error.message, code=error.code) if error.code == "unsupported" else error


class _Lines:
    """The answer, line by line, each sent at once."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._lock = anyio.Lock()
        self._begun = False

    async def send(self, lines: list[dict[str, Any]]) -> None:
        async with self._lock:
            await self._begin()
            for line in lines:
                await self._ask.send(
                    {"type": "http.response.body", "body": codec.encode(line) + b"\n", "more_body": True}
                )

    async def keep_alive(self) -> None:
        await self.send([])  # the head of the answer, before code that says nothing for long
        while True:
            await anyio.sleep(limits.E2B_INTERPRETER_KEEPALIVE_S)
            await self.send([_KEEPALIVE])

    async def end(self) -> None:
        await self._begin()
        await self._ask.send({"type": "http.response.body", "body": b""})

    async def _begin(self) -> None:
        if not self._begun:
            headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
            await self._ask.send({"type": "http.response.start", "status": 200, "headers": headers})
            self._begun = True


async def create_context(ask: Ask) -> None:
    asked = await ask.body(NewContext)
    params = {"language": language_of(asked.language), "cwd": asked.cwd or None}
    try:
        made = await (await ask.guest()).call("contexts.create", without_none(params))
    except InvalidArgument as error:
        raise _no_kernel(error) from error
    await ask.answer(_shape(executionwords.context(made)))


async def list_contexts(ask: Ask) -> None:
    found, _ = executionwords.contexts(await (await ask.guest()).call("contexts.list", {}))
    await ask.answer([_shape(view) for view in found])


async def remove_context(ask: Ask) -> None:
    await _named(ask, "contexts.remove")


async def restart_context(ask: Ask) -> None:
    await _named(ask, "contexts.restart")


async def _named(ask: Ask, op: str) -> None:
    context_id = ask.path["context"]
    try:
        await (await ask.guest()).call(op, {"context": context_id[:64]})
    except (NotFound, InvalidArgument) as error:
        raise _no_context(error, context_id) from error
    await ask.answer(None, 204)


def _shape(view: ContextView) -> dict[str, Any]:
    return {"id": view.id, "language": view.language, "cwd": view.cwd}


async def health(ask: Ask) -> None:
    await ask.guest()
    await ask.answer("OK")


OPERATIONS: Final = (
    Operation("POST", "/execute", execute),
    Operation("POST", "/contexts", create_context),
    Operation("GET", "/contexts", list_contexts),
    Operation("DELETE", "/contexts/{context}", remove_context),
    Operation("POST", "/contexts/{context}/restart", restart_context),
    Operation("GET", "/health", health),
)
