"""A process that is one user: it starts that user's programs and does that user's file work, with that user's rights.

It vforks, because a fork costs more inside the sandbox than everything else about starting a program. It hears of the
end of its children by SIGCHLD and tells the guest. A program that ends at once is told of once, with its end: two
messages cost the guest more than such a program does. Connections of file operations are handed to it and served in
threads here; work that can burn CPU without end gets a process of its own (`one_off`).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
import select
import selectors
import signal
import socket
import subprocess
import termios
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from atoll.guest import passing
from atoll.guest.channel import SENDING, Channel
from atoll.guest.failure import Disconnected, Refused, TimeOver, refusal
from atoll.guest.users import User, from_message
from atoll.model import limits

_RLIMITS = {
    "cpu_s": resource.RLIMIT_CPU,
    "memory_bytes": resource.RLIMIT_AS,
    "open_files": resource.RLIMIT_NOFILE,
    "file_bytes": resource.RLIMIT_FSIZE,
}

# That may find nothing for long: only by looking do they notice that their caller has left.
_SILENT_ONE_OFFS = frozenset({"file.search"})


def run(user: User, job: dict[str, Any], fd: int) -> None:
    threading.stack_size(limits.THREAD_STACK_BYTES)
    connection = socket.socket(fileno=fd)
    if job["kind"] == "one_off":
        cpu_s = limits.ONE_OFF_CPU_S_MAX
        for number in (signal.SIGXCPU, signal.SIGALRM):
            signal.signal(number, _refuse_more)
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + limits.ONE_OFF_LAST_WORDS_S))
        channel = Channel(connection)
        if job["request"]["op"] in _SILENT_ONE_OFFS:
            _mind(channel)
        serve(user, job["request"], channel)
    else:
        Worker(user, connection).run()


def serve(user: User, request: dict[str, Any], channel: Channel) -> None:
    """One file operation, from its request to the end of its connection."""
    from atoll.guest import fileops  # loaded by the zygote before; the guest itself never needs it

    try:
        try:
            if done_for := request.get("done_for"):  # by root, who is asked to act for another
                if request["op"] not in fileops.AS_ROOT_OPS:
                    raise Refused("invalid_argument", f"{request['op']} is not done as_root")
                user = from_message(done_for)
            fileops.OPS[request["op"]](user, request, channel)
        except Disconnected:
            pass
        except BaseException as error:  # whatever it is, the caller is told
            channel.send_error(error)
            channel.discard_input()
    except Disconnected:
        pass
    finally:
        channel.close()


def _refuse_more(_number: int, frame: FrameType | None) -> None:
    """Its time is over: a refusal wherever it is, but not between two halves of a frame."""
    while frame is not None:
        if frame.f_code in SENDING:
            signal.signal(signal.SIGALRM, _refuse_more)
            signal.setitimer(signal.ITIMER_REAL, limits.ONE_OFF_LAST_WORDS_S / 20)
            return
        frame = frame.f_back
    for number in (signal.SIGXCPU, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)
    raise TimeOver(f"this took more than {limits.ONE_OFF_CPU_S_MAX} s of the processor")


def _mind(channel: Channel) -> None:
    """End it when its caller leaves. By a timer: a thread would not get its turn while an expression is looked for."""
    poll = select.poll()
    poll.register(channel.socket, select.POLLRDHUP)

    def look(number: int, frame: FrameType | None) -> None:
        if any(ready & (select.POLLRDHUP | select.POLLHUP | select.POLLERR) for _, ready in poll.poll(0)):
            _refuse_more(number, frame)

    signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, limits.ONE_OFF_LOOK_S, limits.ONE_OFF_LOOK_S)


class Worker:
    def __init__(self, user: User, control: socket.socket) -> None:
        self._user = user
        self._control = control
        self._served: set[Channel] = set()  # each by a thread
        self._wake_fd = -1
        self._retires = False
        self._unsaid: dict[str, Any] | None = None  # the start of a program that may end in a moment

    def run(self) -> None:
        """Until the guest is gone or has nothing more for it, and what it has is done. Its programs go on."""
        readable, writable = os.pipe()
        self._wake_fd = writable
        os.set_blocking(readable, False)
        os.set_blocking(writable, False)
        signal.signal(signal.SIGCHLD, _ignore)
        signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
        with selectors.DefaultSelector() as selector:
            selector.register(readable, selectors.EVENT_READ)
            selector.register(self._control, selectors.EVENT_READ)
            while self._served or not self._retires:
                ready = {key.fd for key, _ in selector.select(limits.BRIEF_S if self._unsaid else None)}
                if readable in ready:
                    os.read(readable, 4096)
                    self._reap()
                if self._unsaid:  # whatever woke us, it was not the end of that program
                    passing.send(self._control, self._unsaid)
                    self._unsaid = None
                if self._control.fileno() in ready:
                    try:
                        self._take(*passing.receive(self._control))
                    except Disconnected:
                        self._retires = True
                        selector.unregister(self._control)

    def _reap(self) -> None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            cpu_s = round(usage.ru_utime + usage.ru_stime, 6)
            end = {"exited": pid, "status": status, "cpu_s": cpu_s}
            if self._unsaid is not None and self._unsaid["pid"] == pid:
                end, self._unsaid = {**self._unsaid, **end}, None
            passing.send(self._control, end)

    def _take(self, message: dict[str, Any], fds: list[int]) -> None:
        if message["do"] == "serve":
            self._serve(message["request"], socket.socket(fileno=fds[0]))
            return
        try:
            reply = {"started": message["id"], "pid": start(message, fds)}
        except (Refused, OSError, ValueError, subprocess.SubprocessError) as error:
            reason = refusal(error)
            reply = {"failed": message["id"], "code": reason.code, "message": reason.message}
        finally:
            for fd in fds:
                os.close(fd)
        if message.get("brief") and "started" in reply:
            self._unsaid = reply
        else:
            passing.send(self._control, reply)

    def _serve(self, request: dict[str, Any], connection: socket.socket) -> None:
        channel = Channel(connection)
        if len(self._served) >= limits.WORKER_THREADS_MAX:
            with contextlib.suppress(Disconnected):
                channel.send_error(Refused("busy", f"{limits.WORKER_THREADS_MAX} file operations at once are the most"))
            channel.close()
            return
        self._served.add(channel)
        thread = threading.Thread(target=self._serve_and_release, args=(request, channel), daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no more threads
            self._served.discard(channel)
            channel.close()

    def _serve_and_release(self, request: dict[str, Any], channel: Channel) -> None:
        try:
            serve(self._user, request, channel)
        finally:
            self._served.discard(channel)
            if self._retires:
                with contextlib.suppress(BlockingIOError):  # it is being woken anyway
                    os.write(self._wake_fd, b"\0")


def _ignore(number: int, frame: object) -> None:
    """A handler must exist for the wake-up descriptor to be written to."""


def start(message: dict[str, Any], fds: list[int]) -> int:
    """Start one program; its pid. `fds` are stdin, stdout and stderr, or the terminal alone."""
    cwd = message["cwd"]
    stdin, stdout, stderr = fds if len(fds) == 3 else (fds[0],) * 3
    try:
        process = subprocess.Popen(
            message["argv"],
            executable=_program(message["argv"][0], message["env"].get("PATH", "")),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            cwd=cwd,
            env=message["env"],
            close_fds=False,  # all of ours close at exec by themselves
            start_new_session=True,
            preexec_fn=_preparation(message["pty"], message["limits"]),
        )
    except (FileNotFoundError, NotADirectoryError):
        if not os.path.isdir(cwd):
            missing = "not_directory" if os.path.exists(cwd) else "not_found"
            raise Refused(missing, f"no such working directory: {cwd}") from None
        raise Refused("no_such_program", f"no such program: {message['argv'][0]}") from None
    except PermissionError:
        raise Refused("permission_denied", f"not allowed to run {message['argv'][0]} in {cwd}") from None
    except OSError as error:
        if error.errno in (errno.E2BIG, errno.ENAMETOOLONG):
            raise Refused("too_large", "an argument or a variable, or all of them together, are too long") from None
        if error.errno == errno.ENOEXEC:
            raise Refused("no_such_program", f"not a program: {message['argv'][0]}") from None
        raise
    process.returncode = 0  # we reap it ourselves; this keeps the object from doing so
    return process.pid


def _program(name: str, path: str) -> str | None:
    """Where a program is, if that is plain: looking costs less than an exec that fails. None leaves it to the exec."""
    if "/" in name:
        return None
    for folder in path.split(":"):
        if not folder.startswith("/"):
            return None  # seen from the program's working directory
        found = f"{folder}/{name}"
        if os.access(found, os.X_OK) and os.path.isfile(found):
            return found
    return None


def _preparation(pty: bool, bounds: dict[str, int]) -> Callable[[], None] | None:
    """What must happen between fork and exec; None where nothing must, because then a vfork will do."""
    if not pty and not bounds:
        return None

    def prepare() -> None:
        if pty:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        for name, bound in bounds.items():
            resource.setrlimit(_RLIMITS[name], (bound, bound))

    return prepare
