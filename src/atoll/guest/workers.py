"""The guest's side of its per-user workers: started when first needed, and again if killed.

Those of the users who were last asked for are kept. Who is asked for no more retires: it ends when its last file
operation has, and programs that it started are then children of the guest's own.
"""

from __future__ import annotations

import os
import resource
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from atoll.guest import passing, tree
from atoll.guest.failure import Disconnected, Refused
from atoll.guest.pump import Pump
from atoll.guest.users import User
from atoll.guest.zygote import Zygote
from atoll.model import limits
from atoll.wire import framing
from atoll.wire import guest as wire

ExitFunction = Callable[[int, int, float], None]  # pid, wait status, cpu seconds
StartFunction = Callable[[int, tuple[int, float] | None], None]  # pid; wait status and cpu seconds if it has ended


_SEND_TIMEOUT = struct.pack("ll", int(limits.WORKER_REPLY_S_MAX), 0)  # a timeval


class _Pending:
    """One start that the worker has not answered yet."""

    def __init__(self, ident: str, on_start: StartFunction) -> None:
        self.ident = ident
        self.answered = threading.Event()
        self.on_start = on_start
        self.refusal: Refused | None = None


class WorkerLink:
    def __init__(self, connection: socket.socket, pid: int, pump: Pump, on_exit: ExitFunction) -> None:
        self.pid = pid
        self.alive = True
        self.engaged = 0
        """Who is about to ask it for something, or waits for an answer; counted by `Workers`."""
        self._socket = connection
        self._pump = pump
        self._on_exit = on_exit
        self._lock = threading.Lock()
        self._pending: dict[str, _Pending] = {}
        self._children: set[int] = set()
        self._decoder = framing.Decoder()
        pump.add_reader(connection.fileno(), self._heard)

    def begin(self, message: dict[str, Any], fds: Sequence[int], on_start: StartFunction) -> _Pending:
        """Have a program started; the worker has its descriptors when this returns, and the caller need not keep them.

        `on_start` is called in the pump's thread, before anything else is heard of the process.
        """
        pending = _Pending(message["id"], on_start)
        with self._lock:
            self._pending[pending.ident] = pending
        try:
            self._send({"do": "spawn", **message}, fds)
        except BaseException:
            self._forget(pending.ident)
            raise
        return pending

    def wait_started(self, pending: _Pending) -> None:
        try:
            if not pending.answered.wait(limits.WORKER_REPLY_S_MAX) and self._forget(pending.ident):
                tree.send(self.pid, 9)  # stopped by its own user, most likely; the next start gets a new one
                raise Refused("timeout", "the sandbox did not start the program in time")
        finally:
            self._forget(pending.ident)
        pending.answered.wait()  # if it came in the last moment, it is being dealt with
        if pending.refusal is not None:
            raise pending.refusal

    def _forget(self, ident: str) -> bool:
        """Whether nobody has begun to deal with the answer to this start, and now nobody will."""
        with self._lock:
            return self._pending.pop(ident, None) is not None

    def hand_over(self, request: dict[str, Any], fd: int) -> None:
        self._send({"do": "serve", "request": request}, [fd])

    def retire(self) -> None:
        """Nothing is asked of it any more, and nobody is about to. Its end is heard of in the pump's thread."""
        with self._lock, suppress(OSError):  # it has ended by itself
            self._socket.shutdown(socket.SHUT_WR)

    def _send(self, message: dict[str, Any], fds: Sequence[int]) -> None:
        with self._lock:
            passing.send(self._socket, message, fds)

    def _heard(self) -> None:
        """In the pump's thread. The worker runs with its user's rights, so its user may have taken it over."""
        try:
            for frame in self._decoder.feed(passing.receive_some(self._socket)):
                self._take(wire.parse_control(frame.payload))
        except (Disconnected, KeyError, TypeError, ValueError):  # of which what the wire raises are
            self._lost()

    def _take(self, message: dict[str, Any]) -> None:
        if "exited" in message and "started" not in message:
            pid = int(message["exited"])
            if pid in self._children:
                self._children.remove(pid)
                self._on_exit(pid, int(message["status"]), float(message["cpu_s"]))
            return
        with self._lock:
            pending = self._pending.pop(str(message.get("started", message.get("failed"))), None)
        if pending is None:
            return
        try:
            if "started" in message:
                pid = int(message["pid"])
                end = (int(message["status"]), float(message["cpu_s"])) if "exited" in message else None
                if end is None:
                    self._children.add(pid)
                pending.on_start(pid, end)
            else:
                pending.refusal = Refused(str(message["code"]), str(message["message"]))
        except Refused as refused:  # by who wanted to follow it; others of this worker are heard of all the same
            pending.refusal = refused
        except BaseException:
            pending.refusal = _killed()
            raise
        finally:
            self._pump.call(pending.answered.set)  # after what is to be sent: who waits for this has nothing to do

    def _lost(self) -> None:
        self.alive = False
        self._pump.remove_reader(self._socket.fileno())
        with self._lock:
            self._socket.close()
            for pending in self._pending.values():
                pending.refusal = _killed()
                pending.answered.set()


def _killed() -> Refused:
    return Refused("busy", "the process that starts programs for this user was killed; try again")


def _parent(pid: int) -> int:
    """0 of a process that is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            entry = tree.parse_stat(file.read(limits.KIB))
    except OSError:
        return 0
    return entry.parent if entry else 0


class Workers:
    def __init__(self, zygote: Zygote, pump: Pump, on_exit: ExitFunction, processes_max: int) -> None:
        self.processes_max = processes_max
        self.stirred = threading.Event()
        """Set whenever there is one more process; whoever waits for that clears it first."""
        self._zygote = zygote
        self._pump = pump
        self._on_exit = on_exit
        self._lock = threading.Lock()
        self._links: dict[User, WorkerLink] = {}  # the one that was asked last stands last
        self._retired: list[WorkerLink] = []
        self._one_offs: set[int] = set()  # of which some may have ended

    def own_pids(self, entries: Iterable[tree.Entry] = ()) -> set[int]:
        """Processes that are the guest itself: never listed as the user's, never ended.

        Where all processes are known, also those of which nobody has heard yet: a worker begins with 20 MiB, and
        may be the largest of all.
        """
        links = [*self._links.values(), *self._retired]
        young = {entry.pid for entry in entries if entry.parent == self._zygote.pid} - self._one_offs
        return {os.getpid(), self._zygote.pid, *(link.pid for link in links if link.alive), *young}

    def _engage(self, user: User) -> WorkerLink:
        """This user's worker, which does not retire before it is released."""
        self._await_room(user)
        with self._lock:
            link = self._links.pop(user, None)
            if link is None or not link.alive:
                link = self._start(user)
            self._links[user] = link
            link.engaged += 1
            if len(self._links) > limits.WORKERS_MAX:
                self._retire(next(iter(self._links)))
        return link

    def _await_room(self, user: User) -> None:
        """Those that retire have some moments to do so, where somebody comes as one user after the other."""
        until_s = time.monotonic() + limits.WORKER_RETIRES_S
        while user not in self._links and self._retiring() >= limits.WORKERS_RETIRING_MAX:
            if time.monotonic() > until_s:
                raise Refused("busy", "programs or file operations of too many users at once")
            time.sleep(limits.WORKER_RETIRES_S / 50)

    def _retiring(self) -> int:
        with self._lock:
            self._retired = [link for link in self._retired if link.alive]
            return len(self._retired)

    def _start(self, user: User) -> WorkerLink:
        ours, theirs = socket.socketpair()
        with theirs:
            pid = self._zygote.fork(user, {"kind": "worker"}, theirs.fileno(), self.processes_max)
        # Not by Python, which would ask before each call whether it may be made.
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _SEND_TIMEOUT)
        return WorkerLink(ours, pid, self._pump, self._on_exit)

    def _retire(self, user: User) -> None:
        """With the lock held."""
        link = self._links.pop(user)
        self._retired.append(link)
        if not link.engaged:
            link.retire()

    def _release(self, link: WorkerLink) -> None:
        with self._lock:
            link.engaged -= 1
            if not link.engaged and link in self._retired:
                link.retire()

    def begin(
        self, user: User, message: dict[str, Any], fds: Sequence[int], on_start: StartFunction
    ) -> Callable[[], None]:
        """As `WorkerLink.begin`; what it gives waits until the program has started, and raises if it could not."""

        def started(pid: int, end: tuple[int, float] | None) -> None:
            # Not before: who looks as long as there is nothing to see goes back to rest. One that has ended may have
            # left others behind, but its end is told first: a look costs more than telling it.
            if end is None:
                self.stirred.set()
            else:
                self._pump.call_later(limits.MEMORY_GUARD_STIR_S, self.stirred.set)
            on_start(pid, end)

        try:
            link, pending = self._begin(user, message, fds, started)
        except Disconnected:  # killed since it was last used: one more try, with a new one
            link, pending = self._begin(user, message, fds, started)

        def wait_started() -> None:
            try:
                link.wait_started(pending)
            finally:
                self._release(link)

        return wait_started

    def _begin(
        self, user: User, message: dict[str, Any], fds: Sequence[int], on_start: StartFunction
    ) -> tuple[WorkerLink, _Pending]:
        """Who gets these waits for the start, and then releases the worker."""
        link = self._engage(user)
        try:
            return link, link.begin(message, fds, on_start)
        except BaseException as error:
            self._forsake(user, link, error)
            raise

    def hand_over(self, user: User, request: dict[str, Any], fd: int) -> None:
        try:
            self._hand_over(user, request, fd)
        except Disconnected:
            self._hand_over(user, request, fd)

    def _hand_over(self, user: User, request: dict[str, Any], fd: int) -> None:
        link = self._engage(user)
        try:
            link.hand_over(request, fd)
        except BaseException as error:
            self._forsake(user, link, error)
            raise
        self._release(link)

    def hand_over_one_off(self, user: User, request: dict[str, Any], fd: int) -> None:
        job = {"kind": "one_off", "request": request}
        with self._lock:
            if len(self._one_offs) >= limits.ONE_OFFS_MAX:
                self._one_offs = {pid for pid in self._one_offs if _parent(pid) == self._zygote.pid}
            if len(self._one_offs) >= limits.ONE_OFFS_MAX:
                raise Refused("busy", f"{limits.ONE_OFFS_MAX} searches and archives at once are the most")
            self._one_offs.add(self._zygote.fork(user, job, fd, self.processes_max))
        self.stirred.set()

    def set_processes_max(self, processes_max: int) -> None:
        """For programs that start from now on."""
        with self._lock:
            if processes_max == self.processes_max:
                return
            self.processes_max = processes_max
            bound = processes_max or resource.RLIM_INFINITY
            for user, link in list(self._links.items()):
                try:
                    resource.prlimit(link.pid, resource.RLIMIT_NPROC, (bound, bound))
                except OSError:
                    self._retire(user)  # the user's next program gets a new one

    def _forsake(self, user: User, link: WorkerLink, error: BaseException) -> None:
        """Released after an error; who cannot be reached is not asked again."""
        with self._lock:
            if isinstance(error, Disconnected) and self._links.get(user) is link:
                self._retire(user)
        self._release(link)
