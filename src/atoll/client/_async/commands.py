"""Commands of a sandbox: run one and wait, start one and go on, list them, find one again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import httpx2

from atoll.client import _exchange as exchange
from atoll.client._async.process import AsyncProcess
from atoll.client._async.transport import AsyncTransport
from atoll.client._events import Collector, CommandResult, EventReader, Output
from atoll.client._twins import AsyncBeside, AsyncSource, async_notify
from atoll.model import limits
from atoll.model.errors import Conflict, ConnectionFailed, NotFound
from atoll.wire.public import ProcessList, ProcessStart, ProcessStarted, ProcessView, PtySize

Command = str | list[str] | tuple[str, ...]
OnOutput = Callable[[str], Any]
Views = list[ProcessView]


class AsyncCommands:
    """`sb.commands`: run programs in a sandbox."""

    def __init__(self, transport: AsyncTransport, sandbox_path: str) -> None:
        self._transport = transport
        self._path = f"{sandbox_path}/processes"

    async def run(
        self,
        cmd: Command,
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        user: str | int | None = None,
        timeout_s: float | None = 60,
        check: bool = False,
        on_stdout: OnOutput | None = None,
        on_stderr: OnOutput | None = None,
        stdin: AsyncSource | None = None,
        login: bool = False,
        kill_on_disconnect: bool = False,
    ) -> CommandResult:
        """Run a command and wait for its end. A string goes to the shell; a list is run as it is.

        At `timeout_s` the command and all it started are ended, and the result says so. `check=True` raises
        CommandFailed for an exit code other than 0. `on_stdout` and `on_stderr` get the output while it comes.
        `user` is a name or a number; `login` runs it in a login shell.

        A connection that breaks is made again. With `kill_on_disconnect` the command ends with it instead, as it does
        when this program ends.

        Example:
            r = await sb.commands.run("echo $A; exit 3", env={"A": "1"})
            print(r.stdout, r.exit_code)
        """
        options = {"env": dict(env) if env else None, "cwd": cwd, "user": user, "timeout_s": timeout_s}
        options |= {"stdin": stdin is not None or None, "kill_on_disconnect": kill_on_disconnect or None}
        body = exchange.start_body(cmd, **options, login=login or None)
        run = _Run(self._transport, self._path, on_stdout, on_stderr)
        result = await run.through(body, stdin)
        return result.checked(cmd) if check else result

    async def start(
        self,
        cmd: Command,
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        user: str | int | None = None,
        timeout_s: float | None = None,
        stdin: bool = False,
        tag: str | None = None,
        login: bool = False,
        pty: tuple[int, int] | None = None,
        nice: int | None = None,
    ) -> AsyncProcess:
        """Start a command and go on at once; it has no time limit unless one is given.

        `pty` gives it a terminal of so many columns and rows, and `login` runs it in a login shell.

        Example:
            p = await sb.commands.start(["python3", "-m", "http.server", "8000"])
            print(p.pid)
            await p.kill()
        """
        options = {"env": dict(env) if env else None, "cwd": cwd, "user": user, "timeout_s": timeout_s, "tag": tag}
        size = PtySize(cols=pty[0], rows=pty[1]) if pty else None
        body = exchange.start_body(cmd, **options, stdin=stdin or None, login=login or None, pty=size, nice=nice)
        started = await self._transport.call("POST", f"{self._path}?follow=false", ProcessStarted, body)
        return AsyncProcess(self._transport, self._path, EventReader(started.id, started.pid))

    async def list(self) -> Views:
        """The processes that were started here, also those that ended a short while ago.

        Example:
            for p in await sb.commands.list():
                print(p.pid, p.argv, p.running)
        """
        return (await self._transport.call("GET", self._path, ProcessList)).items

    async def attach(self, process: str | int) -> AsyncProcess:
        """A process that runs already, by its id, its pid or its tag; its output is read from the beginning.

        Example:
            p = await sb.commands.attach("server")
            result = await p.wait()
        """
        for view in await self.list():
            if process in (view.id, view.pid) or (view.tag is not None and view.tag == process):
                reader = EventReader(view.id, view.pid)
                return AsyncProcess(self._transport, self._path, reader, view.stdin_offset)
        raise NotFound(
            f"no process {process!r} in this sandbox",
            code="no_such_process",
            hint="`commands.list()` shows what there is.",
        )


class _Run:
    """One command from its start to its end, over one connection unless that breaks."""

    def __init__(
        self, transport: AsyncTransport, path: str, on_stdout: OnOutput | None, on_stderr: OnOutput | None
    ) -> None:
        self._transport = transport
        self._path = path
        self._callbacks = {"stdout": on_stdout, "stderr": on_stderr}
        self._collector = Collector()
        self._reader = EventReader()

    async def through(self, body: ProcessStart, stdin: AsyncSource | None) -> CommandResult:
        content = exchange.encode(body)
        read_s = body.timeout_s + limits.CLIENT_GRACE_S if body.timeout_s is not None else None
        async with self._transport.stream(
            "POST", self._path, content, accept=exchange.FRAMES, read_s=read_s
        ) as response:
            pieces = response.aiter_raw()
            async for data in pieces:
                await self._feed(data)
                if self._reader.process_id:
                    break  # its first event is its id, without which there is nothing to write to or to take up again
            if stdin is None or not self._reader.process_id:
                await self._rest(pieces, body)
            else:
                async with AsyncBeside(lambda: self._write(stdin)):
                    await self._rest(pieces, body)
        assert self._reader.exited is not None
        return self._collector.result(self._reader.exited)

    async def _rest(self, pieces: AsyncIterator[bytes], body: ProcessStart) -> None:
        """Its events to the end. It is never started twice; but its stream can be taken up again where it broke."""
        try:
            async for data in pieces:
                await self._feed(data)
            self._reader.check_complete()
        except httpx2.TimeoutException:
            raise
        except (ConnectionFailed, httpx2.TransportError):
            if not self._reader.process_id or body.kill_on_disconnect:
                raise
            await self._resume()

    async def _feed(self, data: bytes) -> None:
        for event in self._reader.feed(data):
            self._collector.add(event)
            if isinstance(event, Output):
                await async_notify(self._callbacks[event.stream], event.text)

    async def _write(self, stdin: AsyncSource) -> None:
        try:
            await self._process().write(stdin, close=True)
        except (Conflict, NotFound):
            return  # it ended, or closed its input, without reading all of it: as with a pipe, that is its right

    async def _resume(self) -> None:
        async for event in self._process():
            self._collector.add(event)
            if isinstance(event, Output):
                await async_notify(self._callbacks[event.stream], event.text)

    def _process(self) -> AsyncProcess:
        return AsyncProcess(self._transport, self._path, self._reader)
