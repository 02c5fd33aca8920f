# Generated from src/atoll/client/_async/code.py by tools/unasync.py: change that file, not this one.
"""Code in a sandbox: interpreters that keep their state, with results as a notebook shows them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Callable, Mapping
from typing import Any

from atoll.client import _exchange as exchange
from atoll.client._sync.transport import Transport
from atoll.client._executions import CodeEvent, CodeReader, Execution, checked
from atoll.client._twins import notify, notify_of, sleep
from atoll.model import limits
from atoll.model.errors import ConnectionFailed
from atoll.wire.public import (
    ContextCreate,
    ContextInterrupt,
    ContextInterrupted,
    ContextList,
    ContextView,
    ExecutionOutput,
    ExecutionResult,
    ExecutionStart,
    ExecutionStarted,
)

OnText = Callable[[str], Any]
OnResult = Callable[[ExecutionResult], Any]
Contexts = list[ContextView]
Names = list[str]


class Code:
    """`sb.code`: run code with state."""

    def __init__(self, transport: Transport, sandbox_path: str) -> None:
        self._transport = transport
        self._path = f"{sandbox_path}/contexts"

    def run(
        self,
        code: str,
        *,
        language: str = "python",
        context: str | ContextView | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = 300,
        stdin: str | None = None,
        check: bool = False,
        on_stdout: OnText | None = None,
        on_stderr: OnText | None = None,
        on_result: OnResult | None = None,
    ) -> Execution:
        """Run code and wait for its end. What it defines is there for the next call with the same context.

        Without `context` it runs in the default one of its language. At `timeout_s` it is interrupted. A caller who
        leaves interrupts it, too. `check=True` raises CodeFailed if it fails.

        Example:
            sb.code.run("x = 41")
            ex = sb.code.run("x + 1")
            print(ex.text)
        """
        body = _start_body(code, env, timeout_s, stdin)
        following = CodeRun(self._transport, self._executions(context, language), CodeReader())
        for event in following._begun(body):
            if isinstance(event, ExecutionOutput):
                notify(on_stdout if event.stream == "stdout" else on_stderr, event.text)
            elif isinstance(event, ExecutionResult) and on_result is not None:
                notify_of(on_result, event)
        return checked(following.execution) if check else following.execution

    def start(
        self,
        code: str,
        *,
        language: str = "python",
        context: str | ContextView | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        stdin: str | None = None,
    ) -> CodeRun:
        """Start code and go on at once: it runs whether or not anybody reads what comes of it.

        Example:
            ex = sb.code.start("import time; time.sleep(60)")
            ex.interrupt()
        """
        path = self._executions(context, language)
        body = _start_body(code, env, timeout_s, stdin)
        started = self._transport.call("POST", f"{path}?follow=false", ExecutionStarted, body)
        return CodeRun(self._transport, path, _reader(started.id, started.context))

    def attach(self, execution_id: str, *, context: str | ContextView = "python") -> CodeRun:
        """Code that was started before, by its id; what came of it is read from the beginning.

        Example:
            ex = sb.code.attach(execution_id)
            print((ex.wait()).text)
        """
        return CodeRun(self._transport, self._executions(context, ""), _reader(execution_id, _id_of(context)))

    def create_context(
        self, language: str = "python", *, cwd: str | None = None, user: str | int | None = None
    ) -> ContextView:
        """One more interpreter, with a state of its own.

        Example:
            context = sb.code.create_context("javascript")
            sb.code.run("let x = 1", context=context)
        """
        body = ContextCreate(language=language, cwd=cwd, user=user)
        return self._transport.call("POST", self._path, ContextView, body)

    def contexts(self) -> Contexts:
        """The contexts that there are.

        Example:
            for context in sb.code.contexts():
                print(context.id, context.language, context.state)
        """
        return (self._transport.call("GET", self._path, ContextList)).items

    def languages(self) -> Names:
        """The languages that this sandbox can run, Jupyter kernels of its template among them.

        Example:
            print(sb.code.languages())
        """
        return (self._transport.call("GET", self._path, ContextList)).languages

    def interrupt(self, context: str | ContextView = "python") -> bool:
        """Stop what runs in a context; whether there was anything. What does not react is ended after 5 seconds.

        Example:
            sb.code.interrupt()
        """
        path = f"{self._one(context)}/interrupt"
        return (self._transport.call("POST", path, ContextInterrupted, ContextInterrupt())).interrupted

    def restart(self, context: str | ContextView = "python") -> ContextView:
        """A fresh interpreter in its place; all state is gone.

        Example:
            sb.code.restart()
        """
        return self._transport.call("POST", f"{self._one(context)}/restart", ContextView)

    def remove_context(self, context: str | ContextView) -> None:
        """End a context and forget it.

        Example:
            sb.code.remove_context(context)
        """
        self._transport.fetch("DELETE", self._one(context))

    def _one(self, context: str | ContextView) -> str:
        return f"{self._path}/{exchange.segment(_id_of(context))}"

    def _executions(self, context: str | ContextView | None, language: str) -> str:
        return f"{self._one(language if context is None else context)}/executions"


class CodeRun:
    """Code that runs, or ran: its events, its end, and how to stop it.

    Example:
        ex = sb.code.start("for i in range(3): print(i)")
        for event in ex:
            print(event)
    """

    def __init__(self, transport: Transport, executions_path: str, reader: CodeReader) -> None:
        self._transport = transport
        self._path = executions_path
        self._reader = reader

    @property
    def id(self) -> str:
        """What the server knows it by; `code.attach` takes it."""
        return self._reader.execution.id

    @property
    def execution(self) -> Execution:
        """What has been read of it so far."""
        return self._reader.execution

    def __iter__(self) -> Iterator[CodeEvent]:
        """Its events from where the last reader stopped; a connection that breaks is made again."""
        attempt = 0
        while self.execution.status == "running":
            try:
                for event in self._attached():
                    attempt = 0
                    yield event
            except ConnectionFailed:
                attempt += 1
                if attempt >= limits.CLIENT_ATTEMPTS_MAX:
                    raise
                sleep(exchange.backoff_s(attempt, random.random()))  # noqa: S311

    def wait(self, *, check: bool = False) -> Execution:
        """Wait for its end.

        Example:
            print((ex.wait()).stdout)
        """
        for _ in self:
            pass
        return checked(self.execution) if check else self.execution

    def interrupt(self) -> bool:
        """Stop it, wherever it stands; whether there was anything to stop.

        Example:
            ex.interrupt()
        """
        path = f"{self._path.removesuffix('/executions')}/interrupt"
        body = ContextInterrupt(execution=self.id)
        return (self._transport.call("POST", path, ContextInterrupted, body)).interrupted

    def _attached(self) -> Iterator[CodeEvent]:
        where = f"{self._path}/{exchange.segment(self.id)}{exchange.query(skip=self._reader.seen)}"
        with self._transport.stream("GET", where, read_s=limits.EXECUTION_SILENCE_S_MAX) as response:
            self._reader.connected()
            for data in response.iter_raw():
                for event in self._reader.feed(data):
                    yield event
        self._reader.check_complete()

    def _begun(self, body: ExecutionStart) -> Iterator[CodeEvent]:
        """Start it and follow it on one connection; the code is never sent twice."""
        content = exchange.encode(body)
        with self._transport.stream(
            "POST", self._path, content, read_s=limits.EXECUTION_SILENCE_S_MAX
        ) as response:
            for data in response.iter_raw():
                for event in self._reader.feed(data):
                    yield event
        self._reader.check_complete()


def _id_of(context: str | ContextView) -> str:
    return context if isinstance(context, str) else context.id


def _reader(execution_id: str, context_id: str) -> CodeReader:
    reader = CodeReader()
    reader.execution.id, reader.execution.context = execution_id, context_id
    return reader


def _start_body(code: str, env: Mapping[str, str] | None, timeout_s: float | None, stdin: str | None) -> ExecutionStart:
    return ExecutionStart(code=code, env=dict(env or {}), timeout_s=timeout_s, stdin=stdin)
