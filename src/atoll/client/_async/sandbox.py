"""A sandbox: create it, find it again, use it, end it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from types import TracebackType

from atoll.client import _exchange as exchange
from atoll.client._async.commands import AsyncCommands
from atoll.client._async.files import AsyncFiles
from atoll.client._async.transport import AsyncTransport
from atoll.client._config import discover
from atoll.client._twins import async_shield
from atoll.model.errors import AtollError
from atoll.model.sandbox import DEFAULT_TEMPLATE, DEFAULT_TIMEOUT_S
from atoll.wire.public import (
    SandboxCreated,
    SandboxDeadline,
    SandboxPage,
    SandboxView,
    TemplateList,
    TemplateView,
)

_PATH = "/v1/sandboxes"
Templates = list[TemplateView]


class AsyncSandbox:
    """One isolated Linux computer. As a context manager it is killed at the end of the block.

    Example:
        async with await AsyncSandbox.create() as sb:
            r = await sb.commands.run("uname -a")
            print(r.stdout)
    """

    def __init__(
        self, transport: AsyncTransport, view: SandboxView, steps_ms: Mapping[str, float] | None = None
    ) -> None:
        """For `create` and `connect`; those are the ways to one."""
        self._transport = transport
        self._view = view
        self._path = f"{_PATH}/{exchange.segment(view.id)}"
        self._released = False
        self.steps_ms = dict(steps_ms or {})
        """Where the time of its creation went, in milliseconds; empty if it was not created here."""
        self.commands = AsyncCommands(transport, self._path)
        self.files = AsyncFiles(transport, self._path)

    @classmethod
    async def create(
        cls,
        template: str = DEFAULT_TEMPLATE,
        *,
        name: str | None = None,
        metadata: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        cpu: float | None = None,
        memory: int | str | None = None,
        disk: int | str | None = None,
        pids: int | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        url: str | None = None,
        api_key: str | None = None,
    ) -> AsyncSandbox:
        """Create a sandbox from a template and wait until it answers.

        After `timeout_s` it is killed, unless `set_timeout` moves that. `cpu` is in cores; `memory` and `disk` are
        bytes, or text such as "2GiB". Without `url` and `api_key`, ATOLL_URL and ATOLL_API_KEY are used, else the
        server of this machine.

        Example:
            sb = await AsyncSandbox.create("code", timeout_s=300, env={"A": "1"}, metadata={"run": "7"}, memory="2GiB")
        """
        body = exchange.create_body(
            template,
            name=name,
            metadata=metadata,
            env=env,
            cpu=cpu,
            memory=memory,
            disk=disk,
            pids=pids,
            timeout_s=timeout_s,
        )
        transport = AsyncTransport.acquire(discover(url, api_key, os.environ))
        try:
            created = await transport.call("POST", _PATH, SandboxCreated, body)
        except BaseException:
            await transport.release()
            raise
        return cls(transport, created.sandbox, created.steps_ms)

    @classmethod
    async def connect(cls, id_or_name: str, *, url: str | None = None, api_key: str | None = None) -> AsyncSandbox:
        """A sandbox that exists, by its id or its name.

        Example:
            sb = await AsyncSandbox.connect("my-sandbox")
        """
        path = f"{_PATH}/{exchange.segment(id_or_name)}"
        transport = AsyncTransport.acquire(discover(url, api_key, os.environ))
        try:
            view = await transport.call("GET", path, SandboxView)
        except BaseException:
            await transport.release()
            raise
        return cls(transport, view)

    @classmethod
    async def templates(cls, *, url: str | None = None, api_key: str | None = None) -> Templates:
        """What sandboxes can be created from.

        Example:
            print([t.name for t in await AsyncSandbox.templates()])
        """
        transport = AsyncTransport.acquire(discover(url, api_key, os.environ))
        try:
            return (await transport.call("GET", "/v1/templates", TemplateList)).items
        finally:
            await transport.release()

    @classmethod
    async def list(
        cls,
        *,
        state: str | None = None,
        template: str | None = None,
        name: str | None = None,
        metadata: Mapping[str, str] | None = None,
        limit: int | None = None,
        url: str | None = None,
        api_key: str | None = None,
    ) -> AsyncIterator[SandboxView]:
        """Your sandboxes, newest first, page by page as you go on; at most `limit`.

        Example:
            async for info in AsyncSandbox.list(state="running", metadata={"run": "7"}):
                print(info.id, info.name)
        """
        transport = AsyncTransport.acquire(discover(url, api_key, os.environ))
        filters = exchange.list_filters(state, template, name, metadata)
        left, cursor = limit, None
        try:
            while left is None or left > 0:
                where = exchange.list_query(filters, left, cursor)
                page = await transport.call("GET", f"{_PATH}{where}", SandboxPage)
                for view in page.items[:left]:
                    yield view
                left = None if left is None else left - len(page.items)
                cursor = page.next
                if cursor is None:
                    return
        finally:
            await transport.release()

    @property
    def id(self) -> str:
        """Its id, which never changes and is never used again."""
        return self._view.id

    @property
    def name(self) -> str | None:
        """The name that was given to it."""
        return self._view.name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.name or ''}>".replace(" >", ">")

    async def info(self) -> SandboxView:
        """What the server knows about it now: state, deadline, resources, and why it ended if it did.

        Example:
            print((await sb.info()).state)
        """
        self._view = await self._transport.call("GET", self._path, SandboxView)
        return self._view

    async def set_timeout(self, timeout_s: float) -> SandboxView:
        """Move its deadline: it is killed so many seconds from now.

        Example:
            await sb.set_timeout(600)
        """
        body = SandboxDeadline(timeout_s=timeout_s)
        self._view = await self._transport.call("PUT", f"{self._path}/deadline", SandboxView, body)
        return self._view

    async def kill(self) -> None:
        """End it and all that is in it. Killing one that has ended does nothing.

        Example:
            await sb.kill()
        """
        await self._transport.fetch("DELETE", self._path)

    async def aclose(self) -> None:
        """Let go of the connection without killing the sandbox.

        Example:
            await sb.aclose()
        """
        if not self._released:
            self._released = True
            await self._transport.release()

    async def __aenter__(self) -> AsyncSandbox:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with async_shield():
            try:
                await self.kill()
            except AtollError:
                if error is None:
                    raise
            finally:
                await self.aclose()
