"""The guest itself: takes connections, knows who may ask, and finds who answers.

Threads: one waits for children (the main one), one is the pump, one guards the memory, and one serves each
connection until it is known who answers. Who follows a process is served by the pump. File operations leave this
process at once: their connection is handed to a process that is the user they act for.
"""

from __future__ import annotations

import hmac
import os
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass

from atoll.guest import (
    contexts_ops,
    identity,
    lease,
    metrics,
    mounting,
    networking,
    ports,
    processops,
    relay,
    shells,
    users,
)
from atoll.guest.bootid import BootId
from atoll.guest.channel import Channel
from atoll.guest.contexts import Contexts
from atoll.guest.failure import Disconnected, Refused
from atoll.guest.lease import Lease
from atoll.guest.memory import MemoryGuard
from atoll.guest.params import Params, flag
from atoll.guest.processes import Table
from atoll.guest.pump import Pump
from atoll.guest.settling import Settling
from atoll.guest.shells import Shells
from atoll.guest.users import User
from atoll.guest.workers import Workers
from atoll.guest.zygote import Zygote
from atoll.model import limits
from atoll.wire import guest as wire

Op = Callable[["Agent", Params, Channel], None]

# Served here. Operations that start with "file." are served by the worker of their user.
OPS: dict[str, Op] = {
    "ping": lambda _agent, _params, channel: channel.send_ok({}),
    "info": identity.info,
    "identity": identity.change,
    "environment": identity.show_environment,
    "network": networking.change,
    "process.start": processops.start,
    "process.attach": processops.attach,
    "process.list": processops.list_all,
    "process.show": processops.show,
    "process.signal": processops.send_signal,
    "process.stdin": processops.send_stdin,
    "process.resize": processops.resize,
    "process.wait": processops.wait,
    "process.output": processops.output,
    "quiet": processops.quiet,
    "shell.run": shells.run,
    "shell.interrupt": shells.interrupt,
    "ports.list": ports.list_all,
    "ports.wait": ports.wait,
    "ports.watch": ports.watch,
    "ports.connect": relay.connect,
    "sync": mounting.flush,
    "volumes": mounting.bind_all,
    "memory.lease": lease.begin,
    "metrics": metrics.report,
    "metrics.processes": metrics.report_processes,
    **contexts_ops.OPS,
}

# File work that may burn CPU without end (a regular expression, an archive): in a process of its own, with a CPU limit.
ONE_OFF_OPS = frozenset({"file.search", "file.replace", "file.pack", "file.unpack"})


@dataclass
class Settings:
    address: str
    port: int
    token_hash: str
    user: str
    peer: str = ""
    processes_max: int = 0


class Agent:
    def __init__(self, settings: Settings, zygote: Zygote) -> None:
        self.settings = settings
        self.token_hash = settings.token_hash
        self.env: dict[str, str] = {}
        self.ops = dict(OPS)
        self.reseed: list[Callable[[bool], None]] = []
        """What draws new random numbers when a sandbox gets an owner; told whether there are copies of it."""
        self.settling = Settling()
        """The last of an identity: no operation begins before it is done."""
        self.pump = Pump()
        self.processes = Table(self.pump)
        self.workers = Workers(zygote, self.pump, self.processes.exited, settings.processes_max)
        self.processes.workers = self.workers
        self.shells = Shells()
        self.contexts = Contexts(self)
        self.reseed.append(self.contexts.reseed)
        self.boot_id = BootId()
        self.reseed.append(self.boot_id.renew)
        self.lease = Lease(self.pump, self.workers.stirred.set)
        self.memory = MemoryGuard(
            self.workers.own_pids, self.processes, stirred=self.workers.stirred, leased_s=self.lease.left_s
        )
        self._listener = socket.create_server((settings.address, settings.port), backlog=128)
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):  # connections get them from here
            self._listener.setsockopt(socket.SOL_SOCKET, option, limits.SOCKET_BUFFER_BYTES)
        self._lock = threading.Lock()
        self._threads = 0
        self._idle = 0

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def start(self) -> None:
        threading.stack_size(limits.THREAD_STACK_BYTES)
        self.pump.start()
        self.memory.start()
        self._add_thread()

    def reap_for_ever(self) -> None:
        """The duty of a first process: take in every orphan. Some are programs of ours whose worker was killed."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, 0)
            except ChildProcessError:
                threading.Event().wait(1.0)  # even the zygote is gone; the next start makes a new one
                continue
            self.pump.call(self._exit_report(pid, status, usage.ru_utime + usage.ru_stime))

    def _exit_report(self, pid: int, status: int, cpu_s: float) -> Callable[[], None]:
        return lambda: self.processes.exited(pid, status, round(cpu_s, 6))

    def user_of(self, params: Params) -> User:
        wanted = params.get("user")
        if wanted is None or wanted == "":
            wanted = self.settings.user
        if isinstance(wanted, bool) or not isinstance(wanted, str | int):
            raise Refused("invalid_argument", "user must be a name or a number")
        return users.look_up(wanted)

    # --- connections ---

    def _add_thread(self) -> None:
        with self._lock:
            self._threads += 1
            self._idle += 1
        threading.Thread(target=self._accept_for_ever, daemon=True).start()

    def _accept_for_ever(self) -> None:
        while True:
            try:
                connection, peer = self._listener.accept()
            except OSError:
                threading.Event().wait(0.05)  # out of descriptors: others will close some
                continue
            if self.settings.peer and peer[0] != self.settings.peer:
                connection.close()
                continue
            with self._lock:
                self._idle -= 1
                last = self._idle == 0
                full = last and self._threads >= limits.CONNECTIONS_MAX
            if last and not full:
                self._add_thread()
            self._serve(connection, full=full)
            with self._lock:
                if self._idle >= limits.CONNECTION_THREADS_IDLE_MAX:
                    self._threads -= 1
                    return
                self._idle += 1

    def _serve(self, connection: socket.socket, *, full: bool) -> None:
        channel = Channel(connection)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                if full:
                    raise Refused("busy", f"{limits.CONNECTIONS_MAX} operations at once are the most")
                self._answer(channel)
            except Disconnected:
                pass
            except Exception as error:  # whatever it is, the caller is told and the guest goes on
                connection.settimeout(limits.FIRST_FRAME_S_MAX)
                channel.send_error(error)
                channel.discard_input()
        except (Disconnected, OSError):
            pass  # OSError: the connection was given to another thread before that, which tells its end
        finally:
            channel.close()

    def _answer(self, channel: Channel) -> None:
        # With a peer only the node gets here, and it opens connections before it needs them.
        request = channel.read_request(patient=bool(self.settings.peer))
        channel.socket.settimeout(limits.TRANSFER_STALL_S_MAX)
        token, name = request.pop("token", ""), request.get("op")
        if not isinstance(token, str) or not hmac.compare_digest(wire.token_hash(token), self.token_hash):
            raise Refused("unauthenticated", "the token is not the one of this sandbox")
        if not isinstance(name, str):
            raise Refused("invalid_argument", "op is missing")
        self.settling.finish()
        if name.startswith("file."):
            self._hand_over(name, request, channel)
            return
        op = self.ops.get(name)
        if op is None:
            raise Refused("unknown_op", f"there is no operation {name[:64]!r}")
        op(self, request, channel)

    def _hand_over(self, name: str, request: Params, channel: Channel) -> None:
        user = self.user_of(request)
        request.pop("done_for", None)
        if flag(request, "as_root"):
            request["done_for"] = user.to_message()
            user = users.look_up(0)
        fd = channel.socket.fileno()
        channel.socket.settimeout(None)  # the mode belongs to the connection, not to our end of it
        if name in ONE_OFF_OPS:
            self.workers.hand_over_one_off(user, request, fd)
        else:
            self.workers.hand_over(user, request, fd)
