"""Helper programs: started from a list of words, bounded in time and output, never through a shell.

A program may leave a daemon behind that keeps its standard descriptors (runsc does). So no pipe is ever handed out: a
reader of one would wait for the daemon. Output goes to sealed memory files, which cannot grow past their bound, and the
end of the program itself is what is waited for, through a pidfd: no thread per child, no polling.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from atoll.model import limits
from atoll.model.errors import AtollError, DeadlineExceeded, Internal, Unavailable

_SEALS = fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK if hasattr(fcntl, "F_SEAL_GROW") else 0x0004 | 0x0002


@dataclass(frozen=True, slots=True)
class Finished:
    """A helper program that has ended; a negative exit code is the signal that ended it."""

    argv: tuple[str, ...]
    exit_code: int
    stdout: bytes
    stderr: str
    duration_s: float

    @property
    def text(self) -> str:
        return self.stdout.decode(errors="replace").strip()


def run(
    argv: Sequence[str | Path],
    *,
    timeout_s: float = limits.HELPER_S_MAX,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    check: bool = True,
    output_fd: int | None = None,
    pass_fds: Sequence[int] = (),
) -> Finished:
    """Run a program to its end; `output_fd` takes stdout and stderr instead of memory. Blocks the calling thread."""
    with _Child(argv, stdin, env, cwd, output_fd, pass_fds) as child:
        poll = select.poll()
        poll.register(child.pidfd, select.POLLIN)
        if not poll.poll(timeout_s * 1000):
            raise child.overdue(timeout_s)
        return child.finish(check)


async def run_async(
    argv: Sequence[str | Path],
    *,
    timeout_s: float = limits.HELPER_S_MAX,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    check: bool = True,
    output_fd: int | None = None,
    pass_fds: Sequence[int] = (),
) -> Finished:
    """The same on the event loop. Cancelling it kills the program."""
    loop = asyncio.get_running_loop()
    with _Child(argv, stdin, env, cwd, output_fd, pass_fds) as child:
        ended = asyncio.Event()
        loop.add_reader(child.pidfd, ended.set)
        try:
            async with asyncio.timeout(timeout_s):
                await ended.wait()
        except TimeoutError:
            raise child.overdue(timeout_s) from None
        finally:
            loop.remove_reader(child.pidfd)
        return child.finish(check)


class _Child:
    """A running helper program with its descriptors; on exit it is dead, reaped and everything is closed."""

    def __init__(
        self,
        argv: Sequence[str | Path],
        stdin: bytes,
        env: Mapping[str, str] | None,
        cwd: Path | None,
        output_fd: int | None,
        pass_fds: Sequence[int],
    ) -> None:
        self._argv = tuple(str(word) for word in argv)
        self._started_s = time.monotonic()
        with contextlib.ExitStack() as opened:
            self._stdout = _memory_file(opened, "stdout", limits.HELPER_STDOUT_BYTES_MAX)
            self._stderr = _memory_file(opened, "stderr", limits.HELPER_STDERR_BYTES_MAX)
            self._process = _popen(
                self._argv,
                stdin=_input_file(opened, stdin) if stdin else subprocess.DEVNULL,
                stdout=self._stdout if output_fd is None else output_fd,
                stderr=self._stderr if output_fd is None else output_fd,
                env=env,
                cwd=cwd,
                pass_fds=tuple(pass_fds),
            )
            opened.callback(self._end)
            self.pidfd = os.pidfd_open(self._process.pid)
            opened.callback(os.close, self.pidfd)
            self._opened = opened.pop_all()

    def __enter__(self) -> _Child:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def finish(self, check: bool) -> Finished:
        exit_code = self._process.wait()  # returns at once: the pidfd has said that it ended
        finished = Finished(
            self._argv, exit_code, _content(self._stdout), self._complaints(), time.monotonic() - self._started_s
        )
        if check and exit_code != 0:
            raise _failed(finished)
        return finished

    def overdue(self, timeout_s: float) -> DeadlineExceeded:
        return DeadlineExceeded(
            f"{Path(self._argv[0]).name} did not end within {timeout_s:g} s",
            code="helper_timeout",
            detail=f"{' '.join(self._argv)[:512]}: {self._complaints()}",
        )

    def _complaints(self) -> str:
        return _content(self._stderr)[-limits.HELPER_TAIL_BYTES :].decode(errors="replace").strip()

    def _end(self) -> None:
        if self._process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # it leads its own session, so its children go too
        # A program that the kernel holds in a system call dies later; the event loop must not wait for that.
        if _ended_within(self._process.pid, limits.HELPER_KILL_S):
            self._process.wait()


def _ended_within(pid: int, timeout_s: float) -> bool:
    pidfd = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))
    finally:
        os.close(pidfd)


def _popen(
    argv: tuple[str, ...],
    *,
    stdin: int,
    stdout: int,
    stderr: int,
    env: Mapping[str, str] | None,
    cwd: Path | None,
    pass_fds: tuple[int, ...],
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            argv,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env=env,
            cwd=cwd,
            pass_fds=pass_fds,
            start_new_session=True,
        )
    except FileNotFoundError as error:
        raise Unavailable(
            f"the program {argv[0]} is not on this host",
            code="missing_program",
            hint="`make setup` installs what a host needs; `atoll doctor` says what is missing",
            detail=str(error),
        ) from None
    except OSError as error:
        raise Internal(
            f"{argv[0]} cannot be started: {error.strerror}", code="helper_failed", detail=str(error)
        ) from None


def _failed(finished: Finished) -> AtollError:
    last_line = finished.stderr.rpartition("\n")[2][:300]
    how = f"was ended by signal {-finished.exit_code}" if finished.exit_code < 0 else f"failed ({finished.exit_code})"
    return Internal(
        f"{Path(finished.argv[0]).name} {how}{': ' if last_line else ''}{last_line}",
        code="helper_failed",
        detail=f"{' '.join(finished.argv)[:1024]}: {finished.stderr}",
    )


def _memory_file(opened: contextlib.ExitStack, name: str, bytes_max: int) -> int:
    fd = os.memfd_create(f"atoll-{name}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    opened.callback(os.close, fd)
    os.ftruncate(fd, bytes_max)  # takes no memory until it is written
    fcntl.fcntl(fd, getattr(fcntl, "F_ADD_SEALS", 1033), _SEALS)
    return fd


def _input_file(opened: contextlib.ExitStack, data: bytes) -> int:
    fd = os.memfd_create("atoll-stdin", os.MFD_CLOEXEC)
    opened.callback(os.close, fd)
    with os.fdopen(os.dup(fd), "wb") as file:
        file.write(data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _content(fd: int) -> bytes:
    # The program wrote through a copy of this very descriptor, so our position in the file is where its output ends.
    return os.pread(fd, os.lseek(fd, 0, os.SEEK_CUR), 0)
