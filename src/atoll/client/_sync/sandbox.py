# Generated from src/atoll/client/_async/sandbox.py by tools/unasync.py: change that file, not this one.
"""A sandbox: create it, find it again, use it, end it."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType

from atoll.client import _exchange as exchange
from atoll.client._sync.code import Code
from atoll.client._sync.commands import Commands
from atoll.client._sync.files import Files
from atoll.client._sync.git import Git
from atoll.client._sync.metrics import Metrics
from atoll.client._sync.network import Network
from atoll.client._sync.ports import Ports
from atoll.client._sync.shell import Shell, shell_start
from atoll.client._sync.states import States
from atoll.client._sync.terminal import Terminals
from atoll.client._sync.transport import Transport
from atoll.client._config import discover
from atoll.client._policies import PolicyLike
from atoll.client._twins import shield
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


class Sandbox(States):
    """One isolated Linux computer. As a context manager it is killed at the end of the block.

    Example:
        with Sandbox.create() as sb:
            r = sb.commands.run("uname -a")
            print(r.stdout)
    """

    def __init__(
        self,
        transport: Transport,
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
        self.commands = Commands(transport, self._path)
        self.files = Files(transport, self._path)
        self.network = Network(transport, self._path)
        self.code = Code(transport, self._path)
        self.ports = Ports(transport, self._path)
        self.terminals = Terminals(transport, self._path)
        self.metrics = Metrics(transport, self._path)
        self.git = Git(transport, self._path)

    @classmethod
    def create(
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
    ) -> Sandbox:
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
            sb = Sandbox.create("code", timeout_s=300, env={"A": "1"}, metadata={"run": "7"}, memory="2GiB")
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
        transport = Transport.acquire(discover(url, api_key, os.environ))
        return cls._ordered(transport, body, idempotency_key or uuid.uuid4().hex)

    @classmethod
    def _ordered(cls, transport: Transport, body: SandboxCreate, once: str) -> Sandbox:
        try:
            created = transport.call("POST", _PATH, SandboxCreated, body, idempotency_key=once)
        except BaseException:
            transport.release()
            raise
        return cls(transport, created.sandbox, created.steps_ms, created.way)

    @classmethod
    def connect(cls, id_or_name: str, *, url: str | None = None, api_key: str | None = None) -> Sandbox:
        """A sandbox that exists, by its id or its name.

        Example:
            sb = Sandbox.connect("my-sandbox")
        """
        path = f"{_PATH}/{exchange.segment(id_or_name)}"
        transport = Transport.acquire(discover(url, api_key, os.environ))
        try:
            view = transport.call("GET", path, SandboxView)
        except BaseException:
            transport.release()
            raise
        return cls(transport, view)

    @classmethod
    def templates(cls, *, url: str | None = None, api_key: str | None = None) -> Templates:
        """What sandboxes can be created from.

        Example:
            print([t.name for t in Sandbox.templates()])
        """
        transport = Transport.acquire(discover(url, api_key, os.environ))
        try:
            return (transport.call("GET", "/v1/templates", TemplateList)).items
        finally:
            transport.release()

    @classmethod
    def list(
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
    ) -> Iterator[SandboxView]:
        """Your sandboxes, newest first, page by page as you go on; at most `limit`. `state` is one or several.

        Example:
            for info in Sandbox.list(state="running", metadata={"run": "7"}):
                print(info.id, info.name)
        """
        transport = Transport.acquire(discover(url, api_key, os.environ))
        filters = exchange.list_filters(state, template, name, metadata, created_after, created_before)
        left, cursor = limit, None
        try:
            while left is None or left > 0:
                where = exchange.list_query(filters, left, cursor)
                page = transport.call("GET", f"{_PATH}{where}", SandboxPage)
                for view in page.items[:left]:
                    yield view
                left = None if left is None else left - len(page.items)
                cursor = page.next
                if cursor is None:
                    return
        finally:
            transport.release()

    @classmethod
    def count(
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
            print(Sandbox.count(state="running"))
        """
        filters = exchange.list_filters(state, template, name, metadata, created_after, created_before)
        where = exchange.list_query([*filters, ("count", "true")], 1, None)
        transport = Transport.acquire(discover(url, api_key, os.environ))
        try:
            return (transport.call("GET", f"{_PATH}{where}", SandboxPage)).total or 0
        finally:
            transport.release()

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
    ) -> Shell:
        """A session: the folder, variables and functions of one command are there for the next.

        Example:
            sh = sb.shell(cwd="/tmp")
            sh.run("X=1")
        """
        return Shell(self._transport, self._path, shell_start(env, cwd, user, login, tag))

    def info(self) -> SandboxView:
        """What the server knows about it now: state, deadline, resources, and why it ended if it did.

        Example:
            print((sb.info()).state)
        """
        self._view = self._transport.call("GET", self._path, SandboxView)
        return self._view

    def set_timeout(self, timeout_s: float) -> SandboxView:
        """Move its deadline: it is killed so many seconds from now.

        Example:
            sb.set_timeout(600)
        """
        body = SandboxDeadline(timeout_s=timeout_s)
        self._view = self._transport.call("PUT", f"{self._path}/deadline", SandboxView, body)
        return self._view

    def set_budget(
        self, *, seconds: float | None = None, money: float | None = None, on_budget: str | None = None
    ) -> SandboxView:
        """Another budget in place of the old one; what it has used already counts. Without `on_budget` that stays.

        Example:
            sb.set_budget(seconds=7200)
            sb.resume()
        """
        action = None if on_budget is None else exchange.deadline_action(on_budget)
        body = SandboxBudget(seconds=seconds, money=money, on_budget=action)
        self._view = self._transport.call("PUT", f"{self._path}/budget", SandboxView, body)
        return self._view

    def start_log(self) -> str:
        """How its start went, step by step, if it failed; else empty.

        Example:
            print((Sandbox.connect("sb1...")).start_log())
        """
        return (self._transport.call("GET", f"{self._path}/start-log", StartLog)).log

    def kill(self) -> None:
        """End it and all that is in it. Killing one that has ended does nothing.

        Example:
            sb.kill()
        """
        self._transport.fetch("DELETE", self._path)

    def close(self) -> None:
        """Let go of the connection without killing the sandbox.

        Example:
            sb.close()
        """
        if not self._released:
            self._released = True
            self._transport.release()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with shield():
            try:
                self.kill()
            except AtollError:
                if error is None:
                    raise
            finally:
                self.close()
