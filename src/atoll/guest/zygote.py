"""The process that becomes other users: forked before the guest has threads, it forks once per user and stays small.

It is root and does one thing: take a user, a descriptor and a job, fork, drop all rights but the user's, and run the
job.
"""

from __future__ import annotations

import gc
import os
import resource
import signal
import socket
import sys
import threading
from typing import Any

from atoll.guest import passing, users, worker
from atoll.guest.failure import Disconnected, Refused
from atoll.guest.users import User
from atoll.model import limits


class Zygote:
    """The guest's side of it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket, self.pid = _start()

    def fork(self, user: User, job: dict[str, Any], fd: int, processes_max: int) -> int:
        """Run a job as this user, with a descriptor; the pid of the process that runs it."""
        message = {"user": user.to_message(), "job": job, "processes_max": processes_max}
        with self._lock:
            try:
                return self._ask(message, fd)
            except (Disconnected, TimeoutError):
                # Somebody with root's rights inside has ended it. A new one is as good.
                self._socket.close()
                self._socket, self.pid = _start()
            try:
                return self._ask(message, fd)
            except (Disconnected, TimeoutError) as error:
                raise Refused("busy", "the sandbox cannot start processes at the moment") from error

    def _ask(self, message: dict[str, Any], fd: int) -> int:
        passing.send(self._socket, message, [fd])
        reply, _ = passing.receive(self._socket)
        if "pid" not in reply:
            raise Refused(reply.get("code", "internal"), reply.get("message", "fork failed"))
        return int(reply["pid"])


def _start() -> tuple[socket.socket, int]:
    ours, theirs = socket.socketpair()
    gc.freeze()  # what exists now is shared with every fork; the collector shall not touch its pages
    pid = os.fork()
    if pid == 0:
        try:
            close_all_but(theirs.fileno())
            _serve(theirs)
        finally:
            os._exit(0)
    theirs.close()
    ours.settimeout(limits.WORKER_REPLY_S_MAX)
    return ours, pid


def close_all_but(*kept: int) -> None:
    low = 3
    for fd in sorted(kept):
        os.closerange(low, fd)
        low = fd + 1
    os.closerange(low, _descriptors_max())


def _descriptors_max() -> int:
    return max((int(name) for name in os.listdir("/proc/self/fd")), default=3) + 1


def _preload() -> None:
    """All that a worker may need is loaded here, once: workers share it, and their users may not be able to read it."""
    import mimetypes

    from atoll.guest import fileops

    mimetypes.MimeTypes()
    assert fileops.OPS
    gc.collect()
    gc.freeze()


def _serve(control: socket.socket) -> None:
    _preload()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # workers are reaped by the kernel
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        try:
            message, fds = passing.receive(control)
        except Disconnected:
            return
        try:
            pid = os.fork()
        except OSError as error:
            passing.send(control, {"code": "too_many_processes", "message": str(error)})
        else:
            if pid == 0:
                control.close()
                _become(message, fds[0])
            passing.send(control, {"pid": pid})
        for fd in fds:
            os.close(fd)


def _become(message: dict[str, Any], fd: int) -> None:
    """In the forked child: never returns."""
    try:
        user = users.from_message(message["user"])
        for number in (signal.SIGCHLD, signal.SIGINT):  # what is ignored here would stay ignored in every program
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        os.umask(0o022)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if message["processes_max"]:
            resource.setrlimit(resource.RLIMIT_NPROC, (message["processes_max"],) * 2)
        os.setgroups(list(user.groups))
        os.setresgid(user.gid, user.gid, user.gid)
        os.setresuid(user.uid, user.uid, user.uid)
        os.chdir("/")
        worker.run(user, message["job"], fd)
    except Disconnected:
        pass  # the guest is gone
    except BaseException as error:
        sys.stderr.write(f"guest worker: {type(error).__name__}: {error}\n")
    finally:
        os._exit(0)
