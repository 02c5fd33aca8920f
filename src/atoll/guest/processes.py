"""Processes that callers started: what is known of each, from its start to the last reader of its output.

starting --pid--> running --wait status--> ended --all that it wrote is in the rings--> finished
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from atoll.guest import terminal, tree
from atoll.guest.failure import Refused
from atoll.guest.params import Params
from atoll.guest.pump import Pump, Stream, Timer
from atoll.guest.ring import Budget, Ring
from atoll.guest.users import User
from atoll.guest.workers import Workers
from atoll.model import limits

PROCESS_VARIABLE = "ATOLL_PROCESS"  # its id, in the environment of all that come from it


@dataclass(frozen=True, slots=True)
class Spec:
    argv: list[str]
    env: dict[str, str]
    cwd: str
    user: User
    tag: str = ""
    size: tuple[int, int] | None = None  # columns and rows of its terminal
    stdin: bool = False
    timeout_s: float | None = None
    nice: int = 0
    bounds: dict[str, int] = field(default_factory=dict)
    shell: bool = False  # a session: its standard input is a socket that commands come on
    input_fd: int | None = None  # what it gets as its standard input; closed here once it has it
    hidden: bool = False  # the sandbox's own, not one that a caller started
    brief: bool = False  # its caller waits for its end: of one that ends at once, start and end are told together


class Process:
    """One started program. Fields change in the pump's thread; `finished` is set last."""

    def __init__(self, ident: str, spec: Spec, budget: Budget) -> None:
        self.id = ident
        self.spec = spec
        self.pid = 0
        self.started_at = time.time()
        self._started_s = time.monotonic()
        self.rings = {"stdout": Ring(budget)} if spec.size else {"stdout": Ring(budget), "stderr": Ring(budget)}
        self.streams: dict[str, Stream] = {}
        self.stdin_fd: int | None = None
        self.stdin_lock = threading.Lock()
        self.stdin_bytes = 0  # that it was given so far
        self.control: socket.socket | None = None  # of a session: commands in, their ends out
        self.timed_out = False
        self.time_limit: Timer | None = None
        self.oom = False
        self.status: int | None = None
        self.exit: Params | None = None
        self.finished = threading.Event()
        self.on_finish: list[Callable[[], None]] = []

    @property
    def mark(self) -> str:
        """What those that come from it are known by."""
        return f"{PROCESS_VARIABLE}={self.id}"

    def describe(self) -> Params:
        return {
            "id": self.id,
            "pid": self.pid,
            "tag": self.spec.tag,
            "argv": _shown(self.spec.argv),
            "cwd": self.spec.cwd,
            "user": self.spec.user.name,
            "pty": self.spec.size is not None,
            "stdin": self.stdin_fd is not None,
            "stdin_offset": self.stdin_bytes,
            "shell": self.spec.shell,
            "started_at": self.started_at,
            "stdout_offset": self.rings["stdout"].end,
            "stderr_offset": self.rings["stderr"].end if "stderr" in self.rings else 0,
            "exit": self.exit,
        }

    def ended(self, status: int, cpu_s: float, pump: Pump) -> None:
        """In the pump's thread: the program is gone; what it wrote may still be on its way."""
        self.status = status
        pump.cancel(self.time_limit)
        self._cpu_s = cpu_s
        self._duration_s = time.monotonic() - self._started_s
        if self.spec.size:
            pump.call_later(limits.PTY_DRAIN_S, self._settle)
        else:
            self._settle()
        self.check_finished()

    def _settle(self) -> None:
        for stream in self.streams.values():
            if not stream.ended:
                stream.settle_offset = stream.ring.end + stream.waiting_bytes()
        self.check_finished()

    def check_finished(self) -> None:
        if self.status is None or self.exit is not None or not all(stream.settled for stream in self.streams.values()):
            return
        self.exit = {
            **exit_words(self.status),
            "timed_out": self.timed_out,
            "oom": self.oom,
            "duration_s": round(self._duration_s, 6),
            "cpu_s": self._cpu_s,
            "stdout_bytes": self.rings["stdout"].end,
            "stderr_bytes": self.rings["stderr"].end if "stderr" in self.rings else 0,
        }
        self.close_stdin()
        self.finished.set()
        for wake in list(self.on_finish):
            wake()

    def write_stdin(self, data: bytes | memoryview) -> int:
        """As much as fits now; 0 when the program is not reading."""
        with self.stdin_lock:
            if self.stdin_fd is None:
                raise Refused("wrong_state", "standard input of this process is not open")
            try:
                count = os.write(self.stdin_fd, data)
                self.stdin_bytes += count
                return count
            except BlockingIOError:
                return 0
            except OSError as error:
                if error.errno in (errno.EPIPE, errno.EIO, errno.EBADF):
                    raise Refused("wrong_state", "the process no longer reads its standard input") from None
                raise

    def write_stdin_all(self, data: bytes | memoryview, stall_s: float) -> None:
        """All of it, however long that takes, unless the program reads nothing at all for so long."""
        rest = memoryview(data)
        deadline_s = time.monotonic() + stall_s
        while len(rest):
            written = self.write_stdin(rest)
            rest = rest[written:]
            if written:
                deadline_s = time.monotonic() + stall_s
            else:
                fd = self.stdin_fd
                if time.monotonic() > deadline_s:
                    raise Refused("timeout", f"the process does not read its input; {len(rest)} bytes were left")
                if fd is not None:
                    poll = select.poll()  # not select, which knows the first 1024 descriptors only
                    poll.register(fd, select.POLLOUT)
                    poll.poll(200)

    def close_stdin(self, *, by_caller: bool = False) -> None:
        with self.stdin_lock:
            fd = self.stdin_fd
            if fd is None:
                return
            if self.spec.size and by_caller:
                with suppress(OSError):  # one that is full or gone reads no key any more
                    os.write(fd, b"\x04")  # a terminal has no end but the key that means it
                return
            self.stdin_fd = None
            os.close(fd)

    def resize(self, cols: int, rows: int) -> None:
        with self.stdin_lock:
            if not self.spec.size or self.stdin_fd is None:
                raise Refused("wrong_state", "the process has no terminal")
            terminal.resize(self.stdin_fd, cols, rows)

    def signal(self, number: int, *, group: bool) -> None:
        if self.status is not None and not group:
            raise Refused("no_such_process", "the process has ended")
        try:
            if group:
                os.killpg(self.pid, number)
            else:
                os.kill(self.pid, number)
        except ProcessLookupError:
            raise Refused("no_such_process", "the process has ended") from None


class _Pipes:
    """Two pipes for the output of the next program, made when nobody waits for it."""

    def __init__(self) -> None:
        self._spare: list[tuple[int, int, int, int]] = []

    def take(self) -> tuple[int, int, int, int]:
        """What is read and what is written, of the one and of the other."""
        try:
            return self._spare.pop()
        except IndexError:
            return self._make()

    def renew(self) -> None:
        if not self._spare:
            with suppress(OSError):  # who needs them is told
                self._spare.append(self._make())

    def _make(self) -> tuple[int, int, int, int]:
        out = os.pipe()
        try:
            err = os.pipe()
        except BaseException:
            for fd in out:
                os.close(fd)
            raise
        for fd in (out[0], err[0]):
            os.set_blocking(fd, False)
            # One that holds more needs fewer turns between its writer and us; the default will do.
            with suppress(OSError):
                fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, limits.PIPE_BYTES)
        return *out, *err


def _shown(argv: list[str]) -> list[str]:
    """What is told of it again and again: all of it if it is short, in length and in the number of its parts."""
    if sum(len(part) + 1 for part in argv) <= limits.ARGV_SHOWN_CHARS_MAX:
        return argv
    return [argv[0][: limits.ARGV_SHOWN_CHARS_MAX], "..."]


def exit_words(status: int) -> Params:
    """A wait status, as a shell would put it: 128 and the signal's number for a program that a signal ended."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return {"code": 128 + number, "signal": number}
    return {"code": os.waitstatus_to_exitcode(status), "signal": None}


def _discard(process: Process, own_fds: list[int]) -> None:
    """What was made ready for a program that did not start."""
    for fd in own_fds:
        os.close(fd)
    if process.control is not None:
        process.control.close()
    for ring in process.rings.values():
        ring.release()


class Table:
    """All processes that are alive or whose output is still kept."""

    def __init__(self, pump: Pump) -> None:
        self._pump = pump
        self._budget = Budget()
        self._lock = threading.Lock()
        self._by_id: dict[str, Process] = {}
        self._by_pid: dict[int, Process] = {}
        self.workers: Workers
        self.start_times: list[float] = []
        self._pipes = _Pipes()
        self._null_fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def output_age_s(self) -> float:
        """How long ago any of them printed something."""
        return time.monotonic() - self._budget.appended_at_s

    def all(self) -> list[Process]:
        with self._lock:
            return list(self._by_id.values())

    def live_pids(self) -> set[int]:
        with self._lock:
            return set(self._by_pid)

    def find(self, params: Params) -> Process:
        """By `id`, `pid` or `tag`; of several with one tag, the newest."""
        with self._lock:
            candidates = list(self._by_id.values())
        for key in ("id", "pid", "tag"):
            wanted = params.get(key)
            if wanted is None:
                continue
            for process in reversed(candidates):
                if wanted == (process.spec.tag if key == "tag" else getattr(process, key)):
                    return process
            raise Refused("no_such_process", f"there is no process with {key} {wanted!r}")
        raise Refused("invalid_argument", "name the process by id, pid or tag")

    def start(self, spec: Spec, then: Callable[[Process], None] | None = None) -> Process:
        """Start a program; `then` is called in the pump's thread, before anything is heard of it."""
        self._make_room()
        process = Process(os.urandom(6).hex(), spec, self._budget)
        child_fds, own_fds = self._plumb(process)
        message: dict[str, Any] = {
            "id": process.id,
            "argv": spec.argv,
            "env": {**spec.env, PROCESS_VARIABLE: process.id},
            "cwd": spec.cwd,
            "pty": spec.size is not None,
            "limits": spec.bounds,
            "brief": spec.brief,
        }
        try:
            try:
                wait_started = self.workers.begin(
                    spec.user, message, child_fds, lambda pid, end: self._started(process, pid, end, then)
                )
            finally:
                self._close(child_fds)
            wait_started()
        except BaseException:
            if not process.pid:  # else it runs and is known, and its end will see to all of this
                _discard(process, own_fds)
            raise
        self._pipes.renew()
        if spec.nice:
            with suppress(ProcessLookupError):  # it has ended already
                os.setpriority(os.PRIO_PROCESS, process.pid, spec.nice)
        return process

    def _close(self, child_fds: list[int]) -> None:
        for fd in child_fds:
            if fd != self._null_fd:
                os.close(fd)

    def _plumb(self, process: Process) -> tuple[list[int], list[int]]:
        """Pipes or a terminal: the child's ends and our ends."""
        if process.spec.size:
            master, slave = terminal.open_pair(*process.spec.size, process.spec.user)
            process.stdin_fd = os.dup(master)
            os.set_blocking(master, False)
            process.streams["stdout"] = Stream(master, process.rings["stdout"], process.check_finished)
            return [slave], [master, process.stdin_fd]
        out_read, out_write, err_read, err_write = self._pipes.take()
        own = [out_read, err_read]
        if process.spec.input_fd is not None:
            stdin = process.spec.input_fd
        elif process.spec.stdin:
            stdin, process.stdin_fd = os.pipe()
            os.set_blocking(process.stdin_fd, False)
            own.append(process.stdin_fd)
        elif process.spec.shell:
            process.control, theirs = socket.socketpair()
            stdin = theirs.detach()
        else:
            stdin = self._null_fd
        process.streams["stdout"] = Stream(out_read, process.rings["stdout"], process.check_finished)
        process.streams["stderr"] = Stream(err_read, process.rings["stderr"], process.check_finished)
        return [stdin, out_write, err_write], own

    def _started(
        self, process: Process, pid: int, end: tuple[int, float] | None, then: Callable[[Process], None] | None
    ) -> None:
        """In the pump's thread, before the worker can report the end of it, or together with that."""
        process.pid = pid
        with self._lock:
            self._by_id[process.id] = process
            self._by_pid[pid] = process
        try:
            if then is not None:
                then(process)  # who follows it follows it from the first byte
        except BaseException:
            if end is None:
                self.end(process)  # its caller hears that it was not started
            raise
        finally:
            self._listen(process, end)

    def _listen(self, process: Process, end: tuple[int, float] | None) -> None:
        for stream in process.streams.values():
            if end is None:
                self._pump.add(stream)
            else:
                self._pump.drain(stream)
        if end is not None:
            self.exited(process.pid, *end)
        elif process.spec.timeout_s is not None:
            process.time_limit = self._pump.call_later(process.spec.timeout_s, lambda: self._time_out(process))

    def exited(self, pid: int, status: int, cpu_s: float) -> None:
        """In the pump's thread: told by the worker, or by the reaper when the worker was gone."""
        with self._lock:
            process = self._by_pid.pop(pid, None)
        if process is not None:
            process.ended(status, cpu_s, self._pump)

    def _time_out(self, process: Process) -> None:
        if process.status is None:
            process.timed_out = True
            self.end(process)

    def end(self, process: Process) -> None:
        """End the whole tree, in a thread of its own because it may take the grace time."""
        arguments = (process.pid, self.workers.own_pids(), process.mark)
        threading.Thread(target=tree.end_tree, args=arguments, daemon=True).start()

    def kill(self, process: Process) -> None:
        self.signal_tree(process.pid, signal.SIGKILL, process.mark)

    def signal_tree(self, root: int, number: int, mark: str = "") -> None:
        """To the process, its session and all that descend from it; KILL until none is left."""
        if number == signal.SIGKILL:
            tree.kill_tree(root, self.workers.own_pids(), mark)
            return
        for pid in tree.Family(root, self.workers.own_pids(), mark).look():
            tree.send(pid, number)

    def forget_finished(self) -> None:
        """A sandbox that gets its owner starts with an empty table."""
        with self._lock:
            done = [process for process in self._by_id.values() if process.exit is not None]
            for process in done:
                del self._by_id[process.id]
        for process in done:
            self._pump.call(lambda process=process: self._forget(process))  # type: ignore[misc]

    def _make_room(self) -> None:
        with self._lock:
            if len(self._by_pid) >= limits.PROCESSES_LIVE_MAX:
                raise Refused("too_many_processes", f"{limits.PROCESSES_LIVE_MAX} processes at once are the most")
            done = [process for process in self._by_id.values() if process.exit is not None]
            forgotten = done[: max(0, len(done) - limits.PROCESSES_KEPT_MAX + 1)]
            for process in forgotten:
                del self._by_id[process.id]
        for process in forgotten:
            self._pump.call(lambda process=process: self._forget(process))  # type: ignore[misc]

    def _forget(self, process: Process) -> None:
        for stream in process.streams.values():
            self._pump.end(stream)  # a grandchild that still writes gets SIGPIPE, as from any reader that left
        for ring in process.rings.values():
            ring.release()


def signal_number(value: Any) -> int:
    """A signal by number, or by name with or without SIG."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < signal.NSIG:
        return value
    if isinstance(value, str):
        name = value.upper().removeprefix("SIG")
        found = getattr(signal, f"SIG{name}", None)
        if isinstance(found, signal.Signals):
            return int(found)
    raise Refused("invalid_argument", f"there is no signal {value!r}")
