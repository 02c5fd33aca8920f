"""What to do at start about the difference between the record and the node: a pure plan.

on record   on the node    then
running     there          keep it, and see that it goes on
standby     there          keep it, and see that it stands still
running     missing        failed (runtime_died, or node_lost if the machine was restarted); the same for standby,
                           pausing, paused and resuming
pausing     there          running: the pause was cut short
pausing     paused         paused
resuming    there          running
resuming    paused         paused: the resume was cut short
creating    either         destroy; failed (start_failed): nobody waits for it any more
ending      either         destroy; killed
ended       there          destroy
unknown     there          destroy
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from atoll.model.lifecycle import EndReason, SleepReason, State, Trigger


@dataclass(frozen=True, slots=True)
class Note:
    """Something that happened to a sandbox, as it goes on record."""

    trigger: Trigger
    reason: EndReason | None = None
    detail: str = ""
    sleep: SleepReason | None = None


@dataclass(frozen=True, slots=True)
class Action:
    """Write `first` on record, destroy whatever the node has of the sandbox, then write that it is gone."""

    sandbox_id: str
    first: Note | None = None


GONE = Note(Trigger.GONE)
LOST = Note(Trigger.DIED, EndReason.RUNTIME_DIED, "it did not survive a stop of the server")
NODE_LOST = Note(Trigger.DIED, EndReason.NODE_LOST, "the machine that it ran on was restarted")
CUT_SHORT = Note(Trigger.START_FAILED, EndReason.START_FAILED, "the server stopped while it was being created")


def settled(state: State, present: bool, paused: bool) -> tuple[Note, ...]:
    """What the record has to learn about a sandbox that sleeps, or was on its way there or back; pure."""
    if paused:
        return tuple(Note(trigger) for trigger in _ASLEEP.get(state, ()))
    if present:
        return tuple(Note(trigger) for trigger in _AWAKE.get(state, ()))
    return ()


_ASLEEP = {
    State.RUNNING: (Trigger.PAUSE_ASKED, Trigger.PAUSED),
    State.STANDBY: (Trigger.PAUSE_ASKED, Trigger.PAUSED),
    State.PAUSING: (Trigger.PAUSED,),
    State.RESUMING: (Trigger.RESUME_FAILED,),
}
_AWAKE = {
    State.PAUSING: (Trigger.PAUSE_FAILED,),
    State.RESUMING: (Trigger.RESUMED,),
    State.PAUSED: (Trigger.RESUME_ASKED, Trigger.RESUMED),
}


def plan(live: Mapping[str, State], present: frozenset[str], *, restarted: bool = False) -> list[Action]:
    """What makes record and node agree again. `live` are the sandboxes that have not ended, by the record.

    `present` are those that the node has, awake or asleep; `restarted` says that its machine has begun anew.
    """
    actions = []
    for sandbox_id, state in live.items():
        if state is State.CREATING:
            actions.append(Action(sandbox_id, first=CUT_SHORT))
        elif state is State.ENDING:
            actions.append(Action(sandbox_id))
        elif sandbox_id not in present:
            actions.append(Action(sandbox_id, first=NODE_LOST if restarted else LOST))
    actions += [Action(sandbox_id) for sandbox_id in sorted(present - live.keys())]
    return actions
