"""A process in a sandbox: its events, its end, its standard input, and signals to it."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

from atoll.client import _exchange as exchange
from atoll.client._async.transport import AsyncTransport
from atoll.client._events import Collector, CommandResult, Event, EventReader
from atoll.client._twins import AsyncSource, async_chunks, async_sleep
from atoll.model import limits
from atoll.model.errors import ConnectionFailed, NotFound
from atoll.wire.public import InputWritten, ProcessSignal, ProcessView, PtySize

_RAW = "application/octet-stream"
_LOST = "connection_lost"


class AsyncProcess:
    """A process that was started, or found again, in a sandbox. It goes on whether or not anybody reads its output.

    Example:
        p = await sb.commands.start("for i in 1 2 3; do echo $i; sleep 1; done")
        async for event in p:
            print(event)
    """

    def __init__(
        self, transport: AsyncTransport, processes_path: str, reader: EventReader, stdin_offset: int = 0
    ) -> None:
        self._transport = transport
        self._path = f"{processes_path}/{exchange.segment(reader.process_id)}"
        self._reader = reader
        self._result: CommandResult | None = None
        self._stdin_offset = stdin_offset

    @property
    def id(self) -> str:
        """What the server knows it by; `commands.attach` takes it."""
        return self._reader.process_id

    @property
    def pid(self) -> int:
        """Its number inside the sandbox."""
        return self._reader.pid

    @property
    def exit_code(self) -> int | None:
        """How it ended, as far as has been read; None before that."""
        return self._reader.exited.exit_code if self._reader.exited else None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} pid={self.pid} exit_code={self.exit_code}>"

    async def __aiter__(self) -> AsyncIterator[Event]:
        """Its events from where the last reader stopped: `Output`, `ProcessDropped`, and `ProcessExited` at the end.

        A connection that breaks is made again, and the stream goes on at the byte where it broke.

        Example:
            async for event in p:
                if isinstance(event, Output):
                    print(event.stream, event.text)
        """
        attempt = 0
        while self._reader.exited is None:
            try:
                async for event in self._attached():
                    attempt = 0
                    yield event
            except ConnectionFailed:
                attempt += 1
                if attempt >= limits.CLIENT_ATTEMPTS_MAX:
                    raise
                await async_sleep(exchange.backoff_s(attempt, random.random()))  # noqa: S311

    async def read(self) -> list[Event]:
        """What came since the last reader stopped, as events, without waiting for more.

        Example:
            for event in await p.read():
                print(event)
        """
        if self._reader.exited is not None:
            return []
        return [event async for event in self._attached(follow=False)]

    async def _attached(self, *, follow: bool = True) -> AsyncIterator[Event]:
        offsets = self._reader.offsets
        until_now = None if follow else False
        where = exchange.query(stdout_offset=offsets["stdout"], stderr_offset=offsets["stderr"], follow=until_now)
        async with self._transport.stream("GET", f"{self._path}/output{where}", accept=exchange.FRAMES) as response:
            self._reader.connected()
            async for data in response.aiter_raw():
                for event in self._reader.feed(data):
                    yield event
        if follow:
            self._reader.check_complete()

    async def wait(self, *, check: bool = False) -> CommandResult:
        """Wait for its end. The result has the output that was not read before.

        Example:
            result = await p.wait()
            print(result.exit_code, result.stdout)
        """
        if self._result is None:
            collector = Collector()
            async for event in self:
                collector.add(event)
            assert self._reader.exited is not None
            self._result = collector.result(self._reader.exited)
        return self._result.checked(f"process {self.id}") if check else self._result

    async def info(self) -> ProcessView:
        """What the sandbox knows about it now: whether it runs, and how it ended.

        Example:
            print((await p.info()).running)
        """
        return await self._transport.call("GET", self._path, ProcessView)

    async def resize(self, cols: int, rows: int) -> None:
        """Tell it the size of its terminal.

        Example:
            await p.resize(120, 40)
        """
        body = PtySize(cols=cols, rows=rows)
        await self._transport.fetch("POST", f"{self._path}/resize", exchange.encode(body))

    async def signal(self, signal: str | int, *, group: bool = True, tree: bool = False) -> None:
        """Send a signal, by name or number, to the process and those it started (`group`), or to it alone.

        `tree` reaches also those that it started and that left its group.

        Example:
            await p.signal("INT")
        """
        body = ProcessSignal(signal=signal, group=group, tree=tree)
        await self._transport.fetch("POST", f"{self._path}/signal", exchange.encode(body))

    async def kill(self) -> None:
        """End it, and those it started, at once. One that has ended already is left as it is.

        Example:
            await p.kill()
        """
        try:
            await self.signal("KILL")
        except NotFound as error:
            if error.code != "no_such_process":
                raise

    async def write(self, data: AsyncSource, *, close: bool = False) -> None:
        """Write to its standard input; it must have been started with `stdin=True`.

        A connection that breaks is made again, and the process gets what of `data` it has not been given yet.

        Example:
            await p.write("print(1)\\n")
        """
        async for chunk in async_chunks(data):
            await self._stdin(chunk, close=False)
        if close:
            await self.close_stdin()

    async def close_stdin(self) -> None:
        """End its standard input: it reads the end of the file.

        Example:
            await p.close_stdin()
        """
        await self._stdin(b"", close=True)

    async def _stdin(self, content: bytes, *, close: bool) -> None:
        begun, again, attempt = self._stdin_offset, False, 0
        while True:
            try:
                written = await self._give(content, exchange.query(close=close, offset=begun if again else None))
                break
            except ConnectionFailed:
                attempt += 1
                if attempt >= limits.CLIENT_ATTEMPTS_MAX:
                    raise
                again = True
                await async_sleep(exchange.backoff_s(attempt, random.random()))  # noqa: S311
        self._stdin_offset = written.offset
        if again and written.offset != begun + len(content):
            raise ConnectionFailed("the connection broke, and somebody else writes to this process, too", code=_LOST)

    async def _give(self, content: bytes, where: str) -> InputWritten:
        # No time limit: a process may take its time to read.
        answer = await self._transport.fetch(
            "POST", f"{self._path}/stdin{where}", content, content_type=_RAW, read_s=None
        )
        return exchange.decode(answer, InputWritten)
