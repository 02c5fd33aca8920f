"""A sandbox: create it, find it again, use it, end it."""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType

from atoll.client import _exchange as exchange
from atoll.client._async.code import AsyncCode
from atoll.client._async.commands import AsyncCommands
from atoll.client._async.files import AsyncFiles
from atoll.client._async.git import AsyncGit
from atoll.client._async.metrics import AsyncMetrics
from atoll.client._async.network import AsyncNetwork
from atoll.client._async.ports import AsyncPorts
from atoll.client._async.shell import AsyncShell, shell_start
from atoll.client._async.states import AsyncStates
from atoll.client._async.terminal import AsyncTerminals
from atoll.client._async.transport import AsyncTransport
from atoll.client._config import discover
from atoll.client._policies import PolicyLike
from atoll.client._twins import async_shield
from atoll.model.errors import AtollError
from atoll.model.sandbox import DEFAULT_TEMPLATE, DEFAULT_TIMEOUT_S
from atoll.wire.public import (
    SandboxBudget,
    SandboxCreate,
    SandboxCreated,
    SandboxDeadline,
    SandboxPage,
    SandboxView,
    SnapshotView,
    StartLog,
    TemplateList,
    TemplateView,
)

_PATH = "/v1/sandboxes"
Templates = list[TemplateView]


class AsyncSandbox(AsyncStates):
    """One isolated Linux computer. As a context manager it is killed at the end of the block.

    Example:
        async with await AsyncSandbox.create() as sb:
            r = await sb.commands.run("uname -a")
            print(r.stdout)
    """

    def __init__(
        self,
        transport: AsyncTransport,
        view: SandboxView,
        steps_ms: Mapping[str, float] | None = None,
        way: str = "",
    ) -> None:
        """For `create` and `connect`; those are the ways to one."""
        self._transport = transport
        self._view = view
        self._path = f"{_PATH}/{exchange.segment(view.id)}"
        self._released = False
        self.steps_ms = dict(steps_ms or {})
        """Where the time of its creation went, in milliseconds; empty if it was not created here."""
        self.way = way
        """How it came to be: `pool`, `shell`, `image` or `boot`; empty if it was not created here."""
        self.commands = AsyncCommands(transport, self._path)
        self.files = AsyncFiles(transport, self._path)
        self.network = AsyncNetwork(transport, self._path)
        self.code = AsyncCode(transport, self._path)
        self.ports = AsyncPorts(transport, self._path)
        self.terminals = AsyncTerminals(transport, self._path)
        self.metrics = AsyncMetrics(transport, self._path)
        self.git = AsyncGit(transport, self._path)

    @classmethod
    async def create(
        cls,
        template: str | SnapshotView = DEFAULT_TEMPLATE,
        *,
        name: str | None = None,
        metadata: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        cpu: float | None = None,
        memory: int | str | None = None,
        disk: int | str | None = None,
        pids: int | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        policy: PolicyLike | None = None,
        secrets: Sequence[str] = (),
        external_id: str | None = None,
        budget_s: float | None = None,
        budget_money: float | None = None,
        on_budget: str = "kill",
        on_deadline: str = "kill",
        idle_timeout_s: float | None = None,
        auto_resume: bool = False,
        with_memory: bool = True,
        volumes: Mapping[str, str] | None = None,
        idempotency_key: str | None = None,
        url: str | None = None,
        api_key: str | None = None,
    ) -> AsyncSandbox:
        """Create a sandbox from a template or a snapshot and wait until it answers.

        After `timeout_s` it is killed, unless `set_timeout` moves that. `cpu` is in cores; `memory` and `disk` are
        bytes, or text such as "2GiB". `policy` says what it may reach (without one: nothing), as a list of hosts or in
        full; `secrets` names those whose placeholders it gets. Without `url` and `api_key`, ATOLL_URL and
        ATOLL_API_KEY are used, else the server of this machine.

        `external_id` finds it again for ever; the same `idempotency_key` gives back the same sandbox. When `budget_s`
        or `budget_money` is spent, what `on_budget` says happens: "kill", "pause" or "standby".
        `on_deadline` says what happens at its deadline, or after `idle_timeout_s` without use: "kill", "pause" or
        "standby". With `auto_resume` a call wakes it when it is paused. Of a snapshot its memory is used too, unless
        `with_memory` is false. `volumes` are paths with the volume that is mounted there: {"/data": "name"}, or
        "name:ro" to read only.

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
            policy=policy,
            secrets=secrets,
            external_id=external_id,
            budget_s=budget_s,
            budget_money=budget_money,
            on_budget=on_budget,
            on_deadline=on_deadline,
            idle_timeout_s=idle_timeout_s,
            auto_resume=auto_resume,
            with_memory=with_memory,
            volumes=volumes,
        )
        transport = AsyncTransport.acquire(discover(url, api_key, os.environ))
        return await cls._ordered(transport, body, idempotency_key or uuid.uuid4().hex)

    @classmethod
    async def _ordered(cls, transport: AsyncTransport, body: SandboxCreate, once: str) -> AsyncSandbox:
        try:
            created = await transport.call("POST", _PATH, SandboxCreated, body, idempotency_key=once)
        except BaseException:
            await transport.release()
            raise
        return cls(transport, created.sandbox, created.steps_ms, created.way)

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
        state: str | Sequence[str] | None = None,
        template: str | None = None,
        name: str | None = None,
        metadata: Mapping[str, str] | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        limit: int | None = None,
        url: str | None = None,
        api_key: str | None = None,
    ) -> AsyncIterator[SandboxView]:
        """Your sandboxes, newest first, page by page as you go on; at most `limit`. `state` is one or several.

        Example:
            async for info in AsyncSandbox.list(state="running", metadata={"run": "7"}):
                print(info.id, info.name)
        """
        transport = AsyncTransport.acquire(discover(url, api_key, os.environ))
        filters = exchange.list_filters(state, template, name, metadata, created_after, created_before)
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

    @classmethod
    async def count(
        cls,
        *,
        state: str | Sequence[str] | None = None,
        template: str | None = None,
        name: str | None = None,
        metadata: Mapping[str, str] | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        url: str | None = None,
        api_key: str | None = None,
    ) -> int:
        """How many of your sandboxes there are, also those that have ended.

        Example:
            print(await AsyncSandbox.count(state="running"))
        """
        filters = exchange.list_filters(state, template, name, metadata, created_after, created_before)
        where = exchange.list_query([*filters, ("count", "true")], 1, None)
        transport = AsyncTransport.acquire(discover(url, api_key, os.environ))
        try:
            return (await transport.call("GET", f"{_PATH}{where}", SandboxPage)).total or 0
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

    def shell(
        self,
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        user: str | int | None = None,
        login: bool = False,
        tag: str | None = None,
    ) -> AsyncShell:
        """A session: the folder, variables and functions of one command are there for the next.

        Example:
            sh = sb.shell(cwd="/tmp")
            await sh.run("X=1")
        """
        return AsyncShell(self._transport, self._path, shell_start(env, cwd, user, login, tag))

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

    async def set_budget(
        self, *, seconds: float | None = None, money: float | None = None, on_budget: str | None = None
    ) -> SandboxView:
        """Another budget in place of the old one; what it has used already counts. Without `on_budget` that stays.

        Example:
            await sb.set_budget(seconds=7200)
            await sb.resume()
        """
        action = None if on_budget is None else exchange.deadline_action(on_budget)
        body = SandboxBudget(seconds=seconds, money=money, on_budget=action)
        self._view = await self._transport.call("PUT", f"{self._path}/budget", SandboxView, body)
        return self._view

    async def start_log(self) -> str:
        """How its start went, step by step, if it failed; else empty.

        Example:
            print(await (await AsyncSandbox.connect("sb1...")).start_log())
        """
        return (await self._transport.call("GET", f"{self._path}/start-log", StartLog)).log

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
