"""Histories of a server against a model of it: create, claim, exec, deadline, kill, death, crash and restart.

Hypothesis chooses what happens; the model says what must be known afterwards. What a crash cut short has two right
outcomes, and the model takes up the one that it finds. A `World` is a server with a node below it: a simulated one in
virtual time, or a real one. The same rules drive both.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

AT_ONCE_MAX = 3
RUNNING = "running"


@dataclass(frozen=True, slots=True)
class Known:
    """What is on record of a sandbox, once nothing is under way any more."""

    state: str
    reason: str | None = None


KILLED = Known("killed", "killed_by_user")
OVERDUE = Known("killed", "deadline")
DEAD = Known("failed", "runtime_died")
NEVER_STARTED = Known("failed", "start_failed")
ALIVE = Known(RUNNING)


class World(Protocol):
    """A server, its record and its node. Every method returns when what it does has been answered."""

    def create(self, *, claim: bool) -> str:
        """The id of a new sandbox; with `claim` one that waited for an owner, where the node has such."""
        ...

    def write(self, sandbox_id: str, text: str) -> None: ...
    def read(self, sandbox_id: str) -> str: ...
    def refuses(self, sandbox_id: str) -> bool:
        """Whether a call into this sandbox is refused, because it does not run."""
        ...

    def kill(self, sandbox_id: str) -> None: ...
    def overrun(self, sandbox_id: str) -> None:
        """Let its deadline pass."""
        ...

    def die(self, sandbox_id: str) -> None:
        """End it from below, as bad luck does."""
        ...

    def crash(self, dying: Collection[str]) -> None:
        """Kill the server in an instant, let some sandboxes die while it is away, and start another."""
        ...

    def crash_during_create(self, moment: int) -> None: ...
    def crash_during_kill(self, sandbox_id: str, moment: int) -> None: ...
    def known(self) -> Mapping[str, Known]:
        """All of this history on record, once nothing is under way."""
        ...

    def present(self) -> Collection[str]:
        """The sandboxes that the node has."""
        ...

    def close(self) -> None: ...


class Histories(RuleBasedStateMachine):
    """The rules. A subclass says which world."""

    def open_world(self) -> World:
        raise NotImplementedError

    @initialize()
    def begin(self) -> None:
        self.world = self.open_world()
        self.expected: dict[str, Known] = {}
        self.texts: dict[str, str] = {}

    def teardown(self) -> None:
        if hasattr(self, "world"):
            try:
                for sandbox_id in self.running():
                    assert self.world.read(sandbox_id) == self.texts[sandbox_id]
            finally:
                self.world.close()

    def running(self) -> list[str]:
        return sorted(one for one, known in self.expected.items() if known == ALIVE)

    def pick(self, index: int) -> list[str]:
        """One of those that run, or none. What a crash leaves is chance, so no rule may depend on it to be chosen."""
        running = self.running()
        return [running[index % len(running)]] if running else []

    def has_room(self) -> bool:
        return len(self.running()) < AT_ONCE_MAX

    def end(self, sandbox_id: str, known: Known) -> None:
        self.expected[sandbox_id] = known
        del self.texts[sandbox_id]

    def begin_life(self, sandbox_id: str) -> None:
        assert sandbox_id not in self.expected, "an id is never given twice"
        self.expected[sandbox_id] = ALIVE
        self.texts[sandbox_id] = sandbox_id
        self.world.write(sandbox_id, sandbox_id)

    @rule(claim=st.booleans())
    def create(self, claim: bool) -> None:
        if self.has_room():
            self.begin_life(self.world.create(claim=claim))

    @rule(index=st.integers(0, 9), text=st.text("abc", min_size=1, max_size=5))
    def execute(self, index: int, text: str) -> None:
        for chosen in self.pick(index):
            assert self.world.read(chosen) == self.texts[chosen]
            self.world.write(chosen, text)
            self.texts[chosen] = text

    @rule(index=st.integers(0, 9))
    def kill(self, index: int) -> None:
        for chosen in self.pick(index):
            self.world.kill(chosen)
            self.end(chosen, KILLED)

    @rule(index=st.integers(0, 9))
    def deadline(self, index: int) -> None:
        for chosen in self.pick(index):
            self.world.overrun(chosen)
            self.end(chosen, OVERDUE)

    @rule(index=st.integers(0, 9))
    def death(self, index: int) -> None:
        for chosen in self.pick(index):
            self.world.die(chosen)
            self.end(chosen, DEAD)

    @rule(dying=st.sets(st.integers(0, 9), max_size=2))
    def crash(self, dying: set[int]) -> None:
        chosen = {one for index in dying for one in self.pick(index)}
        self.world.crash(chosen)
        for sandbox_id in chosen:
            self.end(sandbox_id, DEAD)

    @rule(moment=st.integers(0, 40))
    def crash_during_create(self, moment: int) -> None:
        """Either it runs, or its start failed, or it was never heard of; never anything in between."""
        if not self.has_room():
            return
        self.world.crash_during_create(moment)
        for sandbox_id, known in self.world.known().items():
            if sandbox_id not in self.expected:
                assert known in (ALIVE, NEVER_STARTED), known
                if known == ALIVE:
                    self.begin_life(sandbox_id)
                else:
                    self.expected[sandbox_id] = known

    @rule(index=st.integers(0, 9), moment=st.integers(0, 40))
    def crash_during_kill(self, index: int, moment: int) -> None:
        for chosen in self.pick(index):
            self.world.crash_during_kill(chosen, moment)
            known = self.world.known()[chosen]
            assert known in (ALIVE, KILLED), known
            if known == KILLED:
                self.end(chosen, KILLED)

    @rule(index=st.integers(0, 9))
    def use_after_the_end(self, index: int) -> None:
        ended = sorted(set(self.expected) - set(self.running()))
        assert not ended or self.world.refuses(ended[index % len(ended)])

    @invariant()
    def record_and_node_agree_with_the_model(self) -> None:
        if hasattr(self, "world"):
            known = dict(self.world.known())
            assert known == self.expected, (known, self.expected)
            assert sorted(self.world.present()) == self.running()
