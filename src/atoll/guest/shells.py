"""Shell sessions: one bash that stays, and commands that run in it one after another.

Commands go in and their ends come out on a socket of their own, never on standard output, and each end carries the
random word of its command: whatever a command prints, it cannot pass for the end of one. What commands start does not
inherit that socket.

idle --run--> running --its word and a code on the socket--> idle
                 |----- the shell ends (exit, a signal) -----> gone
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from atoll.guest import tree
from atoll.guest.channel import Channel
from atoll.guest.failure import Refused
from atoll.guest.following import Following
from atoll.guest.params import Params, seconds, text
from atoll.guest.processes import Process
from atoll.guest.pump import Pump, Stream, Timer
from atoll.guest.ring import Ring
from atoll.model import limits

if TYPE_CHECKING:
    from atoll.guest.agent import Agent

INTERRUPT = 61  # RTMAX-3, which no script uses: the shell leaves the command that it is in

# Each command is read as a script of its own, so that a signal can make the shell `return` from it. Descriptor 250 is
# closed for the time of a command; bash keeps its own copy, which is closed at every exec.
DRIVER = r"""
exec 250<&0 </dev/null
shopt -s expand_aliases
__atoll_status() { return "$1"; }
trap 'return 124' RTMAX-3
__atoll_code=0
while IFS= read -r -d '' -u 250 __atoll_word && IFS= read -r -d '' -u 250 __atoll_text; do
  __atoll_status "$__atoll_code"
  . /dev/fd/9 9<<<"$__atoll_text" 250<&-
  __atoll_code=$?
  printf '%s %d %s\0' "$__atoll_word" "$__atoll_code" "$PWD" >&250
done
"""


def shell_argv(login: bool) -> list[str]:
    return ["bash", *(["-l"] if login else []), "-c", DRIVER, "bash"]


class Run:
    """One command in a session; a follower takes it for a process of its own."""

    stdin_fd: int | None = None

    def __init__(self, process: Process, word: str, before: Collection[int] = ()) -> None:
        """`before` are processes of whom their age in ticks may not say that they were there already."""
        self.process = process
        self.word = word
        self.rings: dict[str, Ring] = process.rings
        self.streams: dict[str, Stream] = process.streams
        self.begin = {name: ring.end for name, ring in process.rings.items()}
        self.exit: Params | None = None
        self.timed_out = False
        self.time_limit: Timer | None = None
        self.on_finish: list[Callable[[], None]] = []
        self._started_s = time.monotonic()
        self.began_ticks = tree.now_ticks()
        self.before = before

    def write_stdin(self, data: bytes | memoryview) -> int:
        raise Refused("wrong_state", f"a command of a session has no standard input for {len(data)} bytes")

    def close_stdin(self, *, by_caller: bool = False) -> None:
        """There is none to close."""

    def resize(self, cols: int, rows: int) -> None:
        raise Refused("wrong_state", f"the command has no terminal to make {cols} by {rows}")

    def signal(self, number: int, *, group: bool) -> None:
        self.process.signal(number, group=group)

    def end(self, code: int, *, ended: bool, cwd: str = "", signal: int | None = None) -> None:
        """In the pump's thread. All that was written so far is its output; what comes later is the next command's."""
        finals = {
            f"{name}_bytes": ring.end + (self.streams[name].waiting_bytes() if not self.streams[name].ended else 0)
            for name, ring in self.rings.items()
        }
        self.exit = {
            "code": 124 if self.timed_out and not ended else code,
            "signal": signal,
            "timed_out": self.timed_out,
            "oom": self.process.oom,
            "duration_s": round(time.monotonic() - self._started_s, 6),
            "ended": ended,
            "cwd": cwd,
            **finals,
        }
        self.process.oom = False
        for wake in list(self.on_finish):
            wake()


class Shell:
    def __init__(self, process: Process, pump: Pump, own_pids: Callable[[], set[int]]) -> None:
        assert process.control is not None
        self.process = process
        self._socket: socket.socket = process.control
        self._socket.setblocking(False)
        self._pump = pump
        self._own_pids = own_pids
        self._lock = threading.Lock()
        self._heard = b""
        self._run: Run | None = None
        self._rests_since_ticks = tree.now_ticks()
        process.on_finish.append(self._gone)
        pump.add_reader(self._socket.fileno(), self._hear)

    def run(self, command: str, timeout_s: float | None) -> Run:
        with self._lock:
            if self.process.status is not None:
                raise Refused("wrong_state", "the shell has ended")
            if self._run is not None:
                raise Refused("wrong_state", "the shell is still busy with another command")
            run = self._run = Run(self.process, os.urandom(16).hex(), self._there_already())
        try:
            self._send(f"{run.word}\0{command}\0".encode("utf-8", "surrogateescape"))
        except BaseException:
            # It has half a command, and would take the next for it.
            tree.kill_tree(self.process.pid, self._own_pids(), self.process.mark)
            raise
        if timeout_s is not None:
            self._pump.call(lambda: self._limit(run, timeout_s))
        return run

    def _there_already(self) -> Collection[int]:
        """What the last command left is as old as what the next one starts, if that comes within the same tick."""
        if tree.now_ticks() > self._rests_since_ticks:
            return ()
        return {entry.pid for entry in tree.snapshot()}

    def _limit(self, run: Run, timeout_s: float) -> None:
        """In the pump's thread, where its end is heard of, too: that may have come first."""
        if run.exit is None:
            run.time_limit = self._pump.call_later(timeout_s, lambda: self._time_out(run))

    def _send(self, data: bytes) -> None:
        deadline_s = time.monotonic() + limits.WORKER_REPLY_S_MAX
        view = memoryview(data)
        while view:
            try:
                view = view[self._socket.send(view) :]
            except BlockingIOError:
                if time.monotonic() > deadline_s:
                    raise Refused("timeout", "the shell does not take the command") from None
                time.sleep(0.002)
            except OSError:
                raise Refused("wrong_state", "the shell has ended") from None

    def interrupt(self) -> None:
        """End the command that runs now, and all that it started; the shell stays if it can."""
        run = self._run
        if run is not None:
            threading.Thread(target=self._stop, args=(run,), daemon=True).start()

    def _time_out(self, run: Run) -> None:
        if run.exit is None:
            run.timed_out = True
            self.interrupt()

    def _stop(self, run: Run) -> None:
        pid, number = self.process.pid, 15
        started_s = time.monotonic()
        started = tree.Family(pid, self._own_pids(), self.process.mark, run.began_ticks, run.before)
        told: set[int] = set()
        while run.exit is None and self.process.status is None:
            waited_s = time.monotonic() - started_s
            if waited_s > limits.TERM_GRACE_S * 2:
                tree.kill_tree(pid, self._own_pids(), self.process.mark)
                return
            number = 9 if waited_s > limits.TERM_GRACE_S else number
            children = started.look()  # what an earlier command left in the background goes on
            if self._run is not run:
                break  # some may be the next command's
            tree.send(pid, INTERRUPT)  # again and again: inside a function it only leaves the function
            for child in children:
                tree.send(child, number)
            told |= children
            time.sleep(0.02)
        if any(tree.send(child, 0) for child in told):  # the shell let go of what does not heed a TERM
            time.sleep(max(0.0, started_s + limits.TERM_GRACE_S - time.monotonic()))
            for child in told:
                tree.send(child, 9)

    def _hear(self) -> None:
        """In the pump's thread. Whoever runs in the shell may say anything here, but only so much."""
        try:
            data = self._socket.recv(limits.SHELL_WORDS_BYTES_MAX)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data or len(self._heard) + len(data) > limits.SHELL_WORDS_BYTES_MAX:
            self._pump.remove_reader(self._socket.fileno())
            self._socket.close()
            return
        *messages, self._heard = (self._heard + data).split(b"\0")
        for message in messages:
            word, _, rest = message.decode("utf-8", "surrogateescape").partition(" ")
            code, _, cwd = rest.partition(" ")
            run = self._run
            if run is not None and word == run.word and code.isdecimal() and len(code) <= 3:
                self._rests_since_ticks = tree.now_ticks()
                self._run = None
                self._pump.cancel(run.time_limit)
                run.end(int(code), ended=False, cwd=cwd[: limits.PATH_BYTES_MAX])

    def _gone(self) -> None:
        run, self._run = self._run, None
        if run is not None and self.process.exit is not None:
            self._pump.cancel(run.time_limit)
            run.end(self.process.exit["code"], ended=True, signal=self.process.exit["signal"])


class Shells:
    """The sessions of a sandbox, by the id of their process."""

    def __init__(self) -> None:
        self._shells: dict[str, Shell] = {}

    def add(self, agent: Agent, process: Process) -> None:
        live = {id_: shell for id_, shell in list(self._shells.items()) if shell.process.exit is None}
        self._shells = {**live, process.id: Shell(process, agent.pump, agent.workers.own_pids)}

    def find(self, agent: Agent, params: Params) -> Shell:
        process = agent.processes.find(params)
        if not process.spec.shell:
            raise Refused("wrong_state", "this process is not a shell session")
        shell = self._shells.get(process.id)
        if shell is None:
            raise Refused("wrong_state", "the shell has ended")
        return shell


def run(agent: Agent, params: Params, channel: Channel) -> None:
    """Run a command in a session and follow it. It goes on if the caller leaves, unless told otherwise."""
    shell = agent.shells.find(agent, params)
    command = text(params, "command", chars_max=limits.SHELL_COMMAND_CHARS_MAX)
    started = shell.run(command, seconds(params, "timeout_s"))
    first = {"type": "started", "id": shell.process.id, "pid": shell.process.pid, "offsets": started.begin}
    on_leave = shell.interrupt if params.get("kill_on_disconnect") is True else None
    following = Following(channel, started, agent.pump, started.begin, on_leave=on_leave)
    agent.pump.call(lambda: following.begin(first))


def interrupt(agent: Agent, params: Params, channel: Channel) -> None:
    agent.shells.find(agent, params).interrupt()
    channel.send_ok({})
