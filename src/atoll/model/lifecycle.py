"""The life of a sandbox as one transition table; the only place where states change.

    creating ──started──▶ running ──kill_asked──▶ ending ──gone──▶ killed
        │                    │                       ▲
        │                    ├──deadline_passed──────┘
        │                    └──died──────────────────────────────▶ failed
        ├──kill_asked──▶ ending
        └──start_failed──────────────────────────────────────────▶ failed

    running ──frozen──▶ standby ──thawed──▶ running               memory stays where it is, nothing moves
    running, standby ──pause_asked──▶ pausing ──paused──▶ paused  memory and disk are on disk, nothing is left running
                                         └──pause_failed──▶ running
    paused ──resume_asked──▶ resuming ──resumed──▶ running
                                 └──resume_failed──▶ paused
    standby ──deadline_passed──▶ ending
    standby, pausing, paused, resuming ──kill_asked──▶ ending, ──died──▶ failed

`ending` is on record before anything is torn down, so that a server that dies in the middle of a kill finishes it when
it is back; `pausing` and `resuming` likewise. `killed` and `failed` are final. Each end has a reason; the first reason
given is the one that stays.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from atoll.model.errors import Conflict


class State(StrEnum):
    CREATING = "creating"
    RUNNING = "running"
    STANDBY = "standby"
    PAUSING = "pausing"
    PAUSED = "paused"
    RESUMING = "resuming"
    ENDING = "ending"
    KILLED = "killed"
    FAILED = "failed"


class Trigger(StrEnum):
    """What happened, in the past tense."""

    STARTED = "started"
    START_FAILED = "start_failed"
    KILL_ASKED = "kill_asked"
    DEADLINE_PASSED = "deadline_passed"
    DIED = "died"
    GONE = "gone"
    FROZEN = "frozen"
    THAWED = "thawed"
    PAUSE_ASKED = "pause_asked"
    PAUSED = "paused"
    PAUSE_FAILED = "pause_failed"
    RESUME_ASKED = "resume_asked"
    RESUMED = "resumed"
    RESUME_FAILED = "resume_failed"


class EndReason(StrEnum):
    """Why a sandbox ended; shown to its owner and kept."""

    KILLED_BY_USER = "killed_by_user"
    DEADLINE = "deadline"
    IDLE = "idle"
    OUT_OF_MEMORY = "out_of_memory"
    PIDS = "pids"
    DISK = "disk"
    RUNTIME_DIED = "runtime_died"
    GUEST_DIED = "guest_died"
    GUEST_UNRESPONSIVE = "guest_unresponsive"
    NODE_LOST = "node_lost"
    START_FAILED = "start_failed"
    SERVER_DRAINED = "server_drained"
    BUDGET_SPENT = "budget_spent"
    TENANT_REMOVED = "tenant_removed"


class SleepReason(StrEnum):
    """Why a sandbox was put to sleep; shown to its owner until it wakes."""

    ASKED = "asked"
    DEADLINE = "deadline"
    IDLE = "idle"
    BUDGET_SPENT = "budget_spent"


FINAL: Final = frozenset({State.KILLED, State.FAILED})
LIVE: Final = frozenset(State) - FINAL
SLEEPING: Final = frozenset({State.STANDBY, State.PAUSED})
_KEPT: Final = (State.STANDBY, State.PAUSING, State.PAUSED, State.RESUMING)
ASLEEP: Final = frozenset(_KEPT)
"""Sleeping, on its way there, or on its way back."""

_TABLE: Final[dict[tuple[State, Trigger], State]] = {
    (State.CREATING, Trigger.STARTED): State.RUNNING,
    (State.CREATING, Trigger.START_FAILED): State.FAILED,
    (State.CREATING, Trigger.KILL_ASKED): State.ENDING,
    (State.RUNNING, Trigger.KILL_ASKED): State.ENDING,
    (State.RUNNING, Trigger.DEADLINE_PASSED): State.ENDING,
    (State.RUNNING, Trigger.DIED): State.FAILED,
    (State.RUNNING, Trigger.FROZEN): State.STANDBY,
    (State.STANDBY, Trigger.THAWED): State.RUNNING,
    (State.STANDBY, Trigger.DEADLINE_PASSED): State.ENDING,
    (State.RUNNING, Trigger.PAUSE_ASKED): State.PAUSING,
    (State.STANDBY, Trigger.PAUSE_ASKED): State.PAUSING,
    (State.PAUSING, Trigger.PAUSED): State.PAUSED,
    (State.PAUSING, Trigger.PAUSE_FAILED): State.RUNNING,
    (State.PAUSED, Trigger.RESUME_ASKED): State.RESUMING,
    (State.RESUMING, Trigger.RESUMED): State.RUNNING,
    (State.RESUMING, Trigger.RESUME_FAILED): State.PAUSED,
    **{(state, Trigger.KILL_ASKED): State.ENDING for state in _KEPT},
    **{(state, Trigger.DIED): State.FAILED for state in _KEPT},
    (State.ENDING, Trigger.GONE): State.KILLED,
    # A sandbox that dies, or whose start fails, while it is being ended has ended: the reason is already on record.
    (State.ENDING, Trigger.DIED): State.KILLED,
    (State.ENDING, Trigger.START_FAILED): State.KILLED,
    (State.ENDING, Trigger.STARTED): State.ENDING,
    (State.ENDING, Trigger.RESUMED): State.ENDING,
    (State.ENDING, Trigger.KILL_ASKED): State.ENDING,
    (State.ENDING, Trigger.DEADLINE_PASSED): State.ENDING,
}


def advance(state: State, trigger: Trigger) -> State:
    """The state that follows, or Conflict where the trigger has no meaning in this state."""
    try:
        return _TABLE[state, trigger]
    except KeyError:
        raise Conflict(f"a sandbox that is {state} cannot be {trigger}", code="wrong_state") from None


def may(state: State, trigger: Trigger) -> bool:
    return (state, trigger) in _TABLE
