"""One live interpreter: its process, its connection, and the thread that listens to both.

What the interpreter itself says comes over the connection, in order. What its children write comes through pipes; it is
taken in before each message, so that it stands where a reader expects it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import threading
import time
from typing import TYPE_CHECKING, Protocol

from atoll.guest import contexts_protocol
from atoll.guest.contexts_execution import Request
from atoll.guest.contexts_languages import Language
from atoll.guest.processes import Spec
from atoll.guest.ring import Follower
from atoll.guest.runners import reseeding
from atoll.model import limits
from atoll.wire import framing

if TYPE_CHECKING:
    from atoll.guest.agent import Agent

_KINDS = {"stdout": framing.STDOUT, "stderr": framing.STDERR}


class Listener(Protocol):
    """Whom a runner tells. Called in the runner's thread."""

    def heard(self, runner: Runner, message: contexts_protocol.Heard) -> None: ...
    def wrote(self, runner: Runner, kind: int, data: bytes) -> None: ...
    def gone(self, runner: Runner, why: str) -> None: ...


class Runner:
    def __init__(self, agent: Agent, language: Language, spec: Spec, listener: Listener) -> None:
        self.language = language
        self.ready = False
        self.sent_env: dict[str, str] | None = None
        self._reseeded = threading.Event()
        self._agent = agent
        self._listener = listener
        self._protocol = contexts_protocol.protocol(language.protocol)
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._sending = threading.Lock()
        self._why = ""
        self._socket = self._start(spec)
        threading.Thread(target=self._listen, daemon=True, name=f"context-{language.name}").start()

    def _start(self, spec: Spec) -> socket.socket:
        ours, theirs = socket.socketpair()
        ours.settimeout(limits.WORKER_REPLY_S_MAX)
        try:
            spec = Spec(
                argv=spec.argv, env=spec.env, cwd=spec.cwd, user=spec.user, input_fd=theirs.detach(), hidden=True
            )
            self.process = self._agent.processes.start(spec)
        except BaseException:
            ours.close()
            os.close(self._wake_fd)
            raise
        self._followers = {name: Follower(0, self._wake) for name in self.process.rings}
        for name, follower in self._followers.items():
            self.process.rings[name].follow(follower)
        self.process.on_finish.append(self._wake)
        if hello := self._protocol.hello():
            ours.sendall(hello)
        return ours

    @property
    def pid(self) -> int:
        return self.process.pid

    def run(self, ident: str, request: Request, base_env: dict[str, str]) -> None:
        changed = base_env if self.sent_env != base_env else {}
        self.sent_env = dict(base_env)
        self.send(self._protocol.run(ident, request, changed))

    def warm(self) -> None:
        self.send(self._protocol.warm())

    def reseed(self, *, busy: bool) -> None:
        """Have it draw new random numbers; in the middle of a run it hears nothing but a signal."""
        self._reseeded.clear()
        if not busy:
            self.send(self._protocol.reseed())
            return
        with contextlib.suppress(OSError):
            os.kill(self.pid, reseeding.SIGNAL)

    def wait_reseeded(self, deadline_s: float) -> bool:
        """Whether it said in time that it has; one that ended cannot."""
        return self._reseeded.wait(max(0.0, deadline_s - time.monotonic())) and self.process.exit is None

    def send(self, data: bytes) -> None:
        """An interpreter that does not take it is beyond help."""
        try:
            with self._sending:
                self._socket.sendall(data)
        except OSError as error:
            self.kill(f"it did not listen any more ({error})")

    def interrupt(self, ident: str) -> None:
        self.send(self._protocol.interrupt(ident))
        with contextlib.suppress(OSError):
            os.killpg(self.pid, signal.SIGINT)

    def kill(self, why: str) -> None:
        self._why = self._why or why
        if self.process.exit is None:
            self._agent.processes.kill(self.process)

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            os.eventfd_write(self._wake_fd, 1)

    # --- in the runner's own thread ---

    def _listen(self) -> None:
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        poll.register(self._wake_fd, select.POLLIN)
        connected = True
        try:
            while self.process.exit is None:
                ready = {fd for fd, _ in poll.poll()}
                if self._wake_fd in ready:
                    os.eventfd_read(self._wake_fd)
                    self._take_output()
                if connected and self._socket.fileno() in ready:
                    connected = self._receive()
                    if not connected:
                        poll.unregister(self._socket)
            if connected:
                self._socket.settimeout(0)
                self._receive()  # its last words
            self._take_output()
        finally:
            if self.process.exit is None:
                self.kill("nobody listens to it any more")
            self._close()
            self._reseeded.set()  # nobody need wait for its word any more
            self._listener.gone(self, self._why)

    def _receive(self) -> bool:
        """One helping of messages; False when there will be no more."""
        try:
            data = self._socket.recv(limits.PUMP_READ_BYTES)
            if not data:
                return False
            for message in self._protocol.feed(data):
                self._take(message)
        except contexts_protocol.Broken as error:
            self.kill(f"it broke the protocol: {error}")
            return False
        except OSError:
            return False
        return True

    def _take(self, message: contexts_protocol.Heard) -> None:
        if message.kind == "output":
            self._settle(limits.EXECUTION_SETTLE_S_MIN)
            self._take_output()
            self._listener.wrote(self, message.stream, message.payload)
            return
        if message.kind == "reseeded":
            self._reseeded.set()
            return
        if message.kind in ("ready", "done"):  # words of its start are not the first run's
            self._settle(limits.EXECUTION_SETTLE_S_MAX)
        self._take_output()
        self._listener.heard(self, message)

    def _settle(self, within_s: float) -> None:
        """What its children wrote before it said something is in the pipes at the latest now: let it come first."""
        deadline_s = 0.0
        while not all(stream.all_taken() for stream in self.process.streams.values()):
            now_s = time.monotonic()
            deadline_s = deadline_s or now_s + within_s
            if now_s > deadline_s:
                return
            self._take_output()
            time.sleep(0.001)

    def _take_output(self) -> None:
        for name, follower in self._followers.items():
            ring = self.process.rings[name]
            while True:
                begin, data = ring.read(follower.position, limits.PUMP_READ_BYTES)
                if not data:
                    break
                ring.advance(follower, begin + len(data))
                self._listener.wrote(self, _KINDS[name], data)
            if name in self.process.streams:
                self._agent.pump.nudge(self.process.streams[name])

    def _close(self) -> None:
        for name, follower in self._followers.items():
            self.process.rings[name].unfollow(follower)
        self.process.on_finish.remove(self._wake)
        self._socket.close()
        wake_fd, self._wake_fd = self._wake_fd, -1
        os.close(wake_fd)
