# Generated from src/atoll/client/_async/shell.py by tools/unasync.py: change that file, not this one.
"""Shell sessions of a sandbox: the folder, variables and functions of one command are there for the next."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from atoll.client import _exchange as exchange
from atoll.client._sync.transport import Transport
from atoll.client._events import Collector, CommandResult, EventReader, Output
from atoll.client._twins import notify
from atoll.model import limits
from atoll.model.errors import NotFound
from atoll.wire.public import ShellRun, ShellStart, ShellView

OnOutput = Callable[[str], Any]


class Shell:
    """One session. As a context manager it is ended with the block.

    Example:
        with sb.shell() as sh:
            sh.run("cd /tmp; X=1")
            print((sh.run("echo $X $PWD")).stdout)
    """

    def __init__(self, transport: Transport, sandbox_path: str, start: ShellStart) -> None:
        """For `sb.shell`. The session begins with its first command."""
        self._transport = transport
        self._path = f"{sandbox_path}/shells"
        self._start = start
        self._id = ""

    @property
    def id(self) -> str:
        """What the server knows it by; empty before the first command."""
        return self._id

    def start(self) -> None:
        """Begin the session now, and not with the first command.

        Example:
            sh.start()
        """
        if not self._id:
            self._id = (self._transport.call("POST", self._path, ShellView, self._start)).id

    def run(
        self,
        command: str,
        *,
        timeout_s: float | None = 60,
        check: bool = False,
        on_stdout: OnOutput | None = None,
        on_stderr: OnOutput | None = None,
    ) -> CommandResult:
        """Run a command in the session and wait for its end. `exit` ends the session.

        At `timeout_s` the command and all it started are ended; the session goes on.

        Example:
            r = sh.run("make test", timeout_s=600)
            print(r.exit_code, r.stdout)
        """
        self.start()
        collector, reader = Collector(), EventReader()
        callbacks = {"stdout": on_stdout, "stderr": on_stderr}
        content = exchange.encode(ShellRun(command=command, timeout_s=timeout_s))
        read_s = timeout_s + limits.CLIENT_GRACE_S if timeout_s is not None else None
        with self._transport.stream(
            "POST", f"{self._one()}/run", content, accept=exchange.FRAMES, read_s=read_s
        ) as response:
            for data in response.iter_raw():
                for event in reader.feed(data):
                    collector.add(event)
                    if isinstance(event, Output):
                        notify(callbacks[event.stream], event.text)
        reader.check_complete()
        assert reader.exited is not None
        result = collector.result(reader.exited)
        return result.checked(command) if check else result

    def interrupt(self) -> None:
        """End the command that runs now, as a time limit would.

        Example:
            sh.interrupt()
        """
        if self._id:
            self._transport.fetch("POST", f"{self._one()}/interrupt")

    def close(self) -> None:
        """End the session and all that it started.

        Example:
            sh.close()
        """
        if self._id:
            try:
                self._transport.fetch("DELETE", self._one())
            except NotFound:
                return  # it is gone, which is all that was wanted

    def _one(self) -> str:
        return f"{self._path}/{exchange.segment(self._id)}"

    def __enter__(self) -> Shell:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def shell_start(
    env: Mapping[str, str] | None, cwd: str | None, user: str | int | None, login: bool, tag: str | None
) -> ShellStart:
    return ShellStart(env=dict(env or {}), cwd=cwd, user=user, login=login, tag=tag)
