"""Contexts: stateful interpreters, each with a queue of code that it runs one piece at a time, in order.

stopped --code comes, or asked to be warm--> starting --it says ready--> idle <--> busy
   ^------------ its process ended, for whatever reason; the next code starts a new one --------------'
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

from atoll.guest import contexts_languages as languages
from atoll.guest import users
from atoll.guest.contexts_execution import Execution, Request
from atoll.guest.contexts_languages import Language
from atoll.guest.contexts_protocol import Heard
from atoll.guest.contexts_runner import Runner
from atoll.guest.failure import Refused
from atoll.guest.processes import Spec
from atoll.guest.users import User
from atoll.model import limits
from atoll.wire import framing

if TYPE_CHECKING:
    from atoll.guest.agent import Agent


class Context:
    def __init__(self, agent: Agent, ident: str, language: Language, user: User, cwd: str) -> None:
        self.id = ident
        self.language = language
        self.user = user
        self.cwd = cwd
        self.created_at = time.time()
        self.executions: dict[str, Execution] = {}
        self._agent = agent
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._queue: deque[Execution] = deque()
        self._current: Execution | None = None
        self._runner: Runner | None = None
        self._drawing: Runner | None = None  # one that has been told to draw new random numbers
        self._start_failure = ""
        self._lost = ""  # how an interpreter ended that nobody was using, until somebody hears of it
        self._closed = False
        self._cold = False  # whether it is a copy's, which had to go or whose pages nobody has touched since
        self._runs = 0

    def describe(self) -> dict[str, Any]:
        with self._lock:
            return {
                "id": self.id,
                "language": self.language.name,
                "user": self.user.name,
                "cwd": self.cwd,
                "state": self._state(),
                "execution": self._current.id if self._current else None,
                "queued": len(self._queue),
                "created_at": self.created_at,
            }

    def _state(self) -> str:
        if self._runner is None:
            return "stopped"
        if not self._runner.ready:
            return "starting"
        return "busy" if self._current else "idle"

    # --- what callers ask for ---

    def submit(self, request: Request) -> Execution:
        if not self.language.takes_env and request.env:
            raise Refused("unsupported", f"{self.language.name} takes no env for one run: set it in the code")
        execution = Execution(request, self.id)
        with self._lock:
            if self._closed:
                raise Refused("not_found", "the context has been removed")
            if len(self._queue) >= limits.EXECUTIONS_QUEUED_MAX:
                raise Refused("busy", f"{limits.EXECUTIONS_QUEUED_MAX} pieces of code wait for this context already")
            self._queue.append(execution)
            try:
                self._advance()
            except BaseException:
                if execution in self._queue:
                    self._queue.remove(execution)
                raise
            self.executions[execution.id] = execution
        return execution

    def find(self, execution_id: str) -> Execution:
        with self._lock:
            execution = self.executions.get(execution_id)
        if execution is None:
            raise Refused("not_found", "there is no such execution, or it is too long ago")
        return execution

    def warm(self, timeout_s: float) -> None:
        """Start the interpreter now, and wait until it is ready."""
        deadline_s = time.monotonic() + timeout_s
        with self._lock:
            if self._runner is None:
                self._start_runner()
            while self._runner is not None and not self._runner.ready:
                if not self._changed.wait(deadline_s - time.monotonic()):
                    raise Refused("timeout", f"the interpreter of {self.language.name} did not start in time")
            if self._runner is None:
                raise Refused("internal", f"the interpreter of {self.language.name} ended at its start")
            self._cold = False
            self._runner.warm()

    def interrupt(self, execution: Execution | None = None, why: str = "interrupted") -> bool:
        """Stop what runs, or this one wherever it stands in the queue. What does not react is ended after a while."""
        with self._lock:
            target = execution or self._current
            if target is None or target.ended:
                return False
            target.asked_to_stop = target.asked_to_stop or why
            if target is not self._current:
                self._queue.remove(target)
                target.add_error("KeyboardInterrupt", "interrupted before it began", "")
                target.end(target.asked_to_stop, count=None, exit_code=130)
                return True
            runner = self._runner
            assert runner is not None
        runner.interrupt(target.id)
        self._agent.pump.call_later(limits.CONTEXT_INTERRUPT_AGAIN_S, lambda: self._remind(runner, target))
        self._agent.pump.call_later(limits.CONTEXT_INTERRUPT_GRACE_S, lambda: self._insist(runner, target))
        return True

    def _remind(self, runner: Runner, execution: Execution) -> None:
        """In the pump's thread. The first signal may have come to a program between its fork and its exec, which lose
        it: that is no reason to lose the interpreter.
        """
        if not execution.ended and self._current is execution:
            threading.Thread(target=runner.interrupt, args=(execution.id,), daemon=True).start()

    def _insist(self, runner: Runner, execution: Execution) -> None:
        """In the pump's thread, after the grace time."""
        if not execution.ended and self._current is execution:
            why = "it did not react to an interrupt"
            threading.Thread(target=runner.kill, args=(why,), daemon=True).start()

    def restart(self) -> None:
        """A fresh interpreter; what ran or waited is told."""
        with self._lock:
            waiting, self._queue = list(self._queue), deque()
            runner, self._runner = self._runner, None
            self._lost = ""
            current, self._current = self._current, None
            for execution in [current, *waiting]:
                if execution is not None:
                    self._fail(execution, "the context was restarted")
        if runner is not None:
            # Nobody hears of it any more; who waits for the restart need not wait for its end.
            threading.Thread(target=runner.kill, args=("restarted",), daemon=True).start()

    def close(self) -> None:
        with self._lock:
            self._closed = True
        self.restart()

    def reseed(self, copied: bool) -> None:
        """A sandbox begins a life of its own: no interpreter may go on with the random numbers of a copy of it.

        One that cannot be told to draw new ones is started anew, but only where there are copies: what was started in
        this box alone has drawn them for itself.
        """
        with self._lock:
            self._drawing = None
            runner, busy = self._runner, self._current is not None
            if runner is None:
                return
            if not runner.ready:
                if copied:
                    self._start_another(runner)
                return
        if self.language.reseed == "message":
            if self.language.confirms or not busy:
                self._drawing = runner
            runner.reseed(busy=busy)
            self._cold = copied and not busy
        elif copied:
            self.restart()
            self._cool()

    def _start_another(self, runner: Runner) -> None:
        """One that was still starting has run nothing yet: what waits for it goes on waiting, for another."""
        self._runner = None
        self._changed.notify_all()
        self._advance()
        threading.Thread(target=runner.kill, args=("restarted",), daemon=True).start()
        if self._runner is None:
            self._cool()

    def _cool(self) -> None:
        """It will be warm again when the node says so: by itself only if nobody ever does."""
        self._cold = True
        self._agent.pump.call_later(limits.CONTEXT_REWARM_S_MAX, self._warm_by_itself)

    def cool(self) -> Runner | None:
        """Before copies are made of this sandbox: an interpreter that each copy would have to end at once, and that
        nobody has used yet, is not worth being copied. It is warm again when the node says so, here and there.

        Returns the one that is ending.
        """
        with self._lock:
            runner = self._runner
            if runner is None or not runner.ready or self._queue or self._current or self._runs:
                return None
            if self.language.reseed == "message" or self.id != self.language.name:
                return None
            self.restart()
            self._cool()
            return runner

    def leave_cold(self) -> None:
        """As if it had been warm and was cooled."""
        with self._lock:
            if self._runner is None:
                self._cool()

    @property
    def cold(self) -> bool:
        return self._cold and not self._closed

    def warm_again(self) -> None:
        """What was warm before this copy began to live shall be so again: an interpreter that had to go, and the pages
        of one that could stay, before its owner's first call finds them cold. That it fails is seen by who needs it.
        """
        if self.cold:
            with contextlib.suppress(Refused, OSError):
                self.warm(limits.CONTEXT_START_S_MAX)

    def _warm_by_itself(self) -> None:
        """In the pump's thread."""
        threading.Thread(target=self.warm_again, daemon=True).start()

    def wait_reseeded(self, deadline_s: float) -> bool:
        """Whether the interpreter has said that it has new random numbers. A shell that is busy does not: it draws them
        before its next command, which may be long after this one.
        """
        drawing, self._drawing = self._drawing, None
        return drawing is None or drawing.wait_reseeded(deadline_s)

    # --- under the lock: the queue ---

    def _advance(self) -> None:
        if self._current is not None or not self._queue or self._closed:
            return
        if self._runner is None:
            self._start_runner()
        runner = self._runner
        if runner is None or not runner.ready:
            return
        execution = self._current = self._queue.popleft()
        self._cold = False
        self._runs += 1
        execution.begin()
        if self._lost:
            execution.add_output(framing.STDERR, f"[{self._lost} since the last run: its state is gone]\n".encode())
            self._lost = ""
        runner.run(execution.id, execution.request, self._agent.env)
        if execution.request.timeout_s is not None:
            held = weakref.ref(execution)  # its results shall not be kept for time that it did not need
            self._agent.pump.call_later(execution.request.timeout_s, lambda: self._time_out(held()))

    def _time_out(self, execution: Execution | None) -> None:
        if execution is not None and not execution.ended:
            threading.Thread(target=self.interrupt, args=(execution, "timed_out"), daemon=True).start()

    def _start_runner(self) -> None:
        environment = {**users.base_environment(self.user, terminal=False), **self._agent.env}
        spec = Spec(argv=list(self.language.argv), env=environment, cwd=self.cwd, user=self.user)
        self._start_failure = ""
        runner = self._runner = Runner(self._agent, self.language, spec, self)
        runner.sent_env = dict(self._agent.env)
        self._agent.pump.call_later(limits.CONTEXT_START_S_MAX, lambda: self._give_up(runner))

    def _give_up(self, runner: Runner) -> None:
        if not runner.ready and runner.process.exit is None:
            threading.Thread(target=runner.kill, args=("it did not start in time",), daemon=True).start()

    # --- what the runner says, in its thread ---

    def wrote(self, runner: Runner, kind: int, data: bytes) -> None:
        with self._lock:
            if runner is not self._runner:
                return
            if self._current is not None:
                self._current.add_output(kind, data)
            elif not runner.ready:
                self._start_failure = (self._start_failure + data.decode("utf-8", "replace"))[-4096:]

    def heard(self, runner: Runner, message: Heard) -> None:
        with self._lock:
            if runner is not self._runner:
                return
            if message.kind == "ready":
                runner.ready = True
                self._changed.notify_all()
                self._advance()
            elif self._current is not None:
                self._note(self._current, message)

    def _note(self, execution: Execution, message: Heard) -> None:
        if message.kind == "result":
            execution.add_result(message.payload)
        elif message.kind == "cleared":
            execution.add_event({"type": "cleared", **message.words})
        elif message.kind == "error":
            execution.add_error(**message.words)
        elif message.kind == "done":
            status = execution.asked_to_stop if execution.failed else ""
            words = message.words
            self._end(execution, status or ("error" if execution.failed else "ok"), words["count"], words["exit_code"])
            self._advance()

    def _end(self, execution: Execution, status: str, count: int | None, exit_code: int) -> None:
        self._current = None
        execution.end(status, count=count, exit_code=exit_code)
        self._forget_old()

    def _forget_old(self) -> None:
        """The newest few can be attached to; of those only as many as fit."""
        done = [execution for execution in self.executions.values() if execution.ended]
        kept_bytes = 0
        for number, execution in enumerate(reversed(done)):
            kept_bytes += execution.size_bytes
            if number >= limits.EXECUTIONS_KEPT_MAX or (number and kept_bytes > limits.EXECUTIONS_KEPT_BYTES_MAX):
                del self.executions[execution.id]

    def gone(self, runner: Runner, why: str) -> None:
        with self._lock:
            if runner is not self._runner:
                return
            self._runner = None
            self._changed.notify_all()
            words = _ending(runner, why)
            if not runner.ready:
                words += f" before it was ready: {self._start_failure.strip()[-2000:]}"
                failed, self._queue = list(self._queue), deque()
                for execution in failed:
                    self._fail(execution, words)
            elif self._current is not None:
                current, self._current = self._current, None
                self._fail(current, words, (runner.process.exit or {}).get("code", 1))
            elif self._runs:
                self._lost = words
            try:
                self._advance()
            except Refused as error:
                failed, self._queue = list(self._queue), deque()
                for execution in failed:
                    self._fail(execution, error.message)

    def _fail(self, execution: Execution, words: str, exit_code: int = 1) -> None:
        execution.add_error("ContextDied", words, "")
        status = "timed_out" if execution.asked_to_stop == "timed_out" else "died"
        execution.end(status, count=None, exit_code=exit_code)
        self._forget_old()


def _ending(runner: Runner, why: str) -> str:
    exit_words = runner.process.exit or {}
    if why:
        return f"the interpreter was ended, because {why}"
    if exit_words.get("oom"):
        return "the interpreter was ended, because the sandbox ran out of memory"
    number = exit_words.get("signal")
    if number:
        try:
            name = signal.Signals(number).name
        except ValueError:
            name = f"signal {number}"
        return f"the interpreter was ended by {name}"
    return f"the interpreter ended with exit code {exit_words.get('code', 1)}"


class Contexts:
    """All contexts of the sandbox. The default one of each language has the language's name as its id."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._lock = threading.Lock()
        self._by_id: dict[str, Context] = {}

    def all(self) -> list[Context]:
        with self._lock:
            return list(self._by_id.values())

    def get(self, ident: str) -> Context:
        """A context by its id; the default one of a language is made when it is first asked for."""
        name = languages.canonical(ident)
        with self._lock:
            context = self._by_id.get(ident) or self._by_id.get(name)
            default = context is not None and context.id == context.language.name
            if context is not None and not (default and context.user.name != self._agent.settings.user):
                return context
            if context is None and len(ident) == 12 and all(letter in "0123456789abcdef" for letter in ident):
                raise Refused("not_found", "there is no such context")
            fresh = self._make(name, name, self._agent.user_of({}), "")
            self._by_id[name] = fresh
        if context is not None:
            context.close()  # it was warm for another user
        return fresh

    def create(self, language: str, user: User, cwd: str) -> Context:
        with self._lock:
            if len(self._by_id) >= limits.CONTEXTS_MAX:
                raise Refused("busy", f"{limits.CONTEXTS_MAX} contexts at once are the most")
            context = self._make(os.urandom(6).hex(), language, user, cwd)
            self._by_id[context.id] = context
            return context

    def _make(self, ident: str, language: str, user: User, cwd: str) -> Context:
        path = {**users.base_environment(user, terminal=False), **self._agent.env}["PATH"]
        found = languages.find(language, user, path)
        home = user.home if os.path.isdir(user.home) else "/"
        return Context(self._agent, ident, found, user, cwd or home)

    def remove(self, ident: str) -> None:
        with self._lock:
            context = self._by_id.pop(ident, None)
        if context is None:
            raise Refused("not_found", "there is no such context")
        context.close()

    def reseed(self, copied: bool) -> None:
        contexts = self.all()
        for context in contexts:
            context.reseed(copied)
        deadline_s = time.monotonic() + limits.CONTEXT_RESEED_S_MAX
        for context in contexts:
            if not context.wait_reseeded(deadline_s):
                raise Refused("reseed_failed", f"the context {context.id} did not draw new random numbers in time")

    def cold(self) -> list[Context]:
        """Those that were warm before this copy began to live, and are not."""
        return [context for context in self.all() if context.cold]
