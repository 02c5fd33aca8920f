"""Usage: what a sandbox has used, as intervals that follow one another without a gap and never overlap.

A node counts (CPU time and bytes only grow), a meter remembers where the last interval ended, and the difference is the
next interval. So a server that was away for a while goes on where it stopped: nothing is lost, nothing counted twice.

An interval lies within one hour, and what follows another one in the same hour may be kept as one with it: however
often somebody looks, an hour of a sandbox is one row, and sums over whole hours are exact.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise

from atoll.model import limits
from atoll.model.resources import Resources

HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Sample:
    """What a node says of a sandbox at one moment. CPU and egress are totals since it got its owner."""

    cpu_s: float = 0.0
    memory_bytes: int = 0
    disk_bytes: int = 0
    egress_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Meter:
    """Up to which moment a sandbox has been counted, and what the node said then."""

    sandbox_id: str
    owner: str
    at: datetime
    last: Sample


@dataclass(frozen=True, slots=True)
class Usage:
    """Amounts. GiB-seconds are the average amount times the time that it was held."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    memory_gib_s: float = 0.0
    disk_gib_s: float = 0.0
    egress_bytes: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.wall_s + other.wall_s,
            self.cpu_s + other.cpu_s,
            self.memory_gib_s + other.memory_gib_s,
            self.disk_gib_s + other.disk_gib_s,
            self.egress_bytes + other.egress_bytes,
        )


@dataclass(frozen=True, slots=True)
class Interval:
    """What one sandbox used from one moment to another, within one hour."""

    sandbox_id: str
    owner: str
    begin: datetime
    end: datetime
    usage: Usage


@dataclass(frozen=True, slots=True)
class Prices:
    """What usage costs, in the operator's currency."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    memory_gib_s: float = 0.0
    disk_gib_s: float = 0.0
    egress_gib: float = 0.0

    def most_per_s(self, resources: Resources) -> float:
        """What a second of such a sandbox costs at the most, but for what it sends."""
        return (
            self.wall_s
            + self.cpu_s * resources.cpu
            + self.memory_gib_s * resources.memory_bytes / limits.GIB
            + self.disk_gib_s * resources.disk_bytes / limits.GIB
        )

    def cost(self, usage: Usage) -> float:
        return (
            self.wall_s * usage.wall_s
            + self.cpu_s * usage.cpu_s
            + self.memory_gib_s * usage.memory_gib_s
            + self.disk_gib_s * usage.disk_gib_s
            + self.egress_gib * usage.egress_bytes / limits.GIB
        )


def measure(meter: Meter, sample: Sample | None, now: datetime) -> tuple[list[Interval], Meter]:
    """The intervals since the meter's moment, split at whole hours, and the meter that stands at `now`.

    Without a sample (the sandbox has died, and its counters with it) the time still counts, with what was held at the
    last sample. A clock that was set back makes no interval; counting goes on when it has caught up.
    """
    if now <= meter.at:
        return [], meter
    known = sample or meter.last
    elapsed_s = (now - meter.at).total_seconds()
    used = Usage(
        wall_s=elapsed_s,
        # A counter that is smaller than before has begun anew, with a new group on the host: it counts from zero.
        cpu_s=_growth(meter.last.cpu_s, known.cpu_s),
        memory_gib_s=_held(meter.last.memory_bytes, known.memory_bytes, elapsed_s),
        disk_gib_s=_held(meter.last.disk_bytes, known.disk_bytes, elapsed_s),
        egress_bytes=int(_growth(meter.last.egress_bytes, known.egress_bytes)),
    )
    parts = _split(meter.at, now)
    intervals = []
    left_bytes = used.egress_bytes
    for number, (begin, end) in enumerate(parts, 1):
        share = (end - begin) / (now - meter.at)
        egress_bytes = left_bytes if number == len(parts) else int(used.egress_bytes * share)
        left_bytes -= egress_bytes
        part = Usage(
            (end - begin).total_seconds(),
            used.cpu_s * share,
            used.memory_gib_s * share,
            used.disk_gib_s * share,
            egress_bytes,
        )
        intervals.append(Interval(meter.sandbox_id, meter.owner, begin, end, part))
    return intervals, replace(meter, at=now, last=known)


def _growth(before: float, after: float) -> float:
    return after - before if after >= before else after


def _held(before_bytes: int, after_bytes: int, elapsed_s: float) -> float:
    return (before_bytes + after_bytes) / 2 / limits.GIB * elapsed_s


def hour_of(moment: datetime) -> datetime:
    """The beginning of the hour that it is in."""
    return moment.replace(minute=0, second=0, microsecond=0)


def _split(begin: datetime, end: datetime) -> list[tuple[datetime, datetime]]:
    """The time in pieces that each lie within one hour, so that an hour's usage is a sum of whole intervals."""
    cuts = [begin]
    cut = hour_of(begin) + HOUR
    while cut < end:
        cuts.append(cut)
        cut += HOUR
    return list(pairwise([*cuts, end]))
