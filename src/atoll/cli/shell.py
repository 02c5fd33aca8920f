"""`atoll shell`: a real terminal in a sandbox, with raw keys, the window's size, and the exit code of its program."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import termios
import tty
from collections.abc import Awaitable, Callable, Iterator

import anyio
import click

from atoll.cli.find import find
from atoll.cli.identity import identity_argument
from atoll.cli.options import Inside, env_option
from atoll.client import AsyncSandbox, AsyncTerminal
from atoll.model import limits
from atoll.model.errors import ConnectionFailed, InvalidArgument

_LEAVE = b"~."  # after Enter, as people know it from ssh
_KEYS_BYTES_MAX = 65536


@click.command(cls=Inside)
@identity_argument
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option("--attach", "attach", metavar="TERMINAL", help="One that is there: its id, its pid, or tag:NAME.")
@click.option("--tag", help="A name to find it again by.")
@click.option("--cwd", help="The folder to start in.")
@click.option("--user", "-u", help="The user to be.")
@env_option
def shell(
    identity: str,
    command: tuple[str, ...],
    attach: str | None,
    tag: str | None,
    cwd: str | None,
    user: str | None,
    env: tuple[tuple[str, str], ...],
) -> int:
    """Open a terminal in a sandbox: a login shell, or the COMMAND that is given.

    Enter, ~ and . leaves it and lets it go on; `--attach` comes back to it, also from elsewhere and by several people.

    \b
        atoll shell ID
        atoll shell ID vi notes.txt
        atoll shell ID --attach tag:build
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InvalidArgument(
            "this is not a terminal", code="no_terminal", hint="In a pipe, use `atoll sandbox exec ID COMMAND`."
        )
    found = find(identity)
    found.close()
    words = command[1:] if command[:1] == ("--",) else command
    session = _Session(found.id, list(words), attach, tag, cwd, user, dict(env))
    return anyio.run(session.run)


class _Session:
    """One person at one terminal, from sitting down to leaving."""

    def __init__(
        self,
        sandbox_id: str,
        words: list[str],
        attach: str | None,
        tag: str | None,
        cwd: str | None,
        user: str | None,
        env: dict[str, str],
    ) -> None:
        self._sandbox_id = sandbox_id
        self._words = words
        self._attach = attach
        self._tag = tag
        self._cwd = cwd
        self._user = user
        self._env = env
        self._left = False

    async def run(self) -> int:
        sandbox = await AsyncSandbox.connect(self._sandbox_id)
        try:
            terminal = await self._sit_down(sandbox)
            with _raw(sys.stdin.fileno()):
                await self._talk(terminal)
            await terminal.aclose()
        finally:
            await sandbox.aclose()
        if self._left:
            print(f"\natoll: it goes on; come back with: atoll shell {self._sandbox_id} --attach {terminal.id}")
            return 0
        ended = terminal.exited
        assert ended is not None
        if ended.oom:
            print("atoll: ended because the sandbox ran out of memory", file=sys.stderr)
        return 128 + ended.signal if ended.signal is not None else ended.exit_code & 0xFF

    async def _sit_down(self, sandbox: AsyncSandbox) -> AsyncTerminal:
        cols, rows = _size()
        if self._attach is not None:
            terminal = await sandbox.terminals.attach(self._attach)
            await terminal.resize(cols, rows)
            return terminal
        cmd: str | list[str] | None = self._words or None
        if len(self._words) == 1:
            cmd = self._words[0]  # one word is a line for the shell, as with `sandbox exec`
        env = {"TERM": os.environ.get("TERM", "xterm-256color"), **self._env}
        return await sandbox.terminals.open(
            cmd, cols=cols, rows=rows, env=env, cwd=self._cwd, user=self._user, tag=self._tag
        )

    async def _talk(self, terminal: AsyncTerminal) -> None:
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:

            async def until_it_ends(work: Callable[[], Awaitable[None]]) -> None:
                nonlocal failure
                try:
                    await work()
                except Exception as error:  # carried out of the group as it is, not wrapped in a group of exceptions
                    failure = failure or error
                tasks.cancel_scope.cancel()

            tasks.start_soon(until_it_ends, lambda: self._type(terminal))
            tasks.start_soon(until_it_ends, lambda: _follow_size(terminal))
            await until_it_ends(lambda: _print(terminal))
        if failure is not None:
            raise failure

    async def _type(self, terminal: AsyncTerminal) -> None:
        """Keys, until the person leaves."""
        fd = sys.stdin.fileno()
        at_line_start, held = True, b""
        while True:
            await anyio.wait_readable(fd)
            keys = os.read(fd, _KEYS_BYTES_MAX)
            if not keys or (at_line_start and held + keys == _LEAVE):
                self._left = True
                return
            if at_line_start and not held and keys == _LEAVE[:1]:
                held = keys  # the first half of leaving, or of something that is typed
                continue
            keys, held = held + keys, b""
            at_line_start = keys[-1:] in (b"\r", b"\n")
            with contextlib.suppress(ConnectionFailed):  # while the connection is being made again, keys are lost
                await terminal.write(keys)


def _size() -> tuple[int, int]:
    cols, rows = shutil.get_terminal_size()
    return min(cols, limits.TERMINAL_SIZE_MAX), min(rows, limits.TERMINAL_SIZE_MAX)


async def _follow_size(terminal: AsyncTerminal) -> None:
    with anyio.open_signal_receiver(signal.SIGWINCH) as changes:
        async for _ in changes:
            with contextlib.suppress(ConnectionFailed):
                await terminal.resize(*_size())


async def _print(terminal: AsyncTerminal) -> None:
    async for data in terminal:
        _show(data)


def _show(data: bytes) -> None:
    view = memoryview(data)
    fd = sys.stdout.fileno()
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:  # standard input and output may be one file, set not to block by someone else
            os.set_blocking(fd, True)


@contextlib.contextmanager
def _raw(fd: int) -> Iterator[None]:
    """Every key goes to the sandbox as it is; whatever happens, the terminal is what it was afterwards."""
    before = termios.tcgetattr(fd)
    try:
        tty.setraw(fd)
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
