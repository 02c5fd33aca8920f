"""Quotas: how much a tenant or a key may have at once, and how fast it may ask for it."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from atoll.model import limits
from atoll.model.errors import InvalidArgument, LimitExceeded
from atoll.model.resources import Resources


@dataclass(frozen=True, slots=True)
class Quota:
    """What may be had; None is as much as the machine gives. Budgets are for one calendar month, in UTC."""

    sandboxes: int | None = None
    cpu: float | None = None
    memory_bytes: int | None = None
    disk_bytes: int | None = None
    creates_per_minute: int | None = None
    requests_per_second: float | None = None
    budget_s: float | None = None
    budget_money: float | None = None

    def checked(self) -> Quota:
        for item in dataclasses.fields(self):
            value = getattr(self, item.name)
            if value is not None and not (math.isfinite(value) and 0 <= value <= limits.QUOTA_VALUE_MAX):
                raise InvalidArgument(
                    f"{item.name} is {value}, which is not between 0 and {limits.QUOTA_VALUE_MAX}",
                    code="invalid_quota",
                    hint="Leave a value out for no limit of its own.",
                )
        return self


def has_budget(quota: Quota) -> bool:
    """Whether what it may use in a month has a bound."""
    return quota.budget_s is not None or quota.budget_money is not None


@dataclass(frozen=True, slots=True)
class Holding:
    """What somebody has at one moment: live sandboxes and their resources, and the creates of the last minute."""

    sandboxes: int = 0
    cpu: float = 0.0
    memory_bytes: int = 0
    disk_bytes: int = 0
    creates: int = 0
    oldest_create_age_s: float = 0.0
    """Of the creates of the last minute; a place is free again when it is a minute old."""


def check_disk(whose: str, most_bytes: int, held_bytes: int) -> None:
    """Refuse more disk than there may be: of sandboxes, volumes and snapshots together."""
    if held_bytes > most_bytes:
        raise LimitExceeded(
            f"this would bring the {whose} to {held_bytes} disk_bytes, over its quota of {most_bytes}",
            code="quota_exceeded",
            hint="Remove a sandbox, a volume or a snapshot, ask for less, or have the quota raised.",
        )


def check_create(whose: str, quota: Quota, holding: Holding, asked: Resources) -> None:
    """Refuse a create that would go over the quota; the holding is the one before it."""
    wanted = {
        "sandboxes": holding.sandboxes + 1,
        "cpu": holding.cpu + asked.cpu,
        "memory_bytes": holding.memory_bytes + asked.memory_bytes,
        "disk_bytes": holding.disk_bytes + asked.disk_bytes,
    }
    for name, value in wanted.items():
        most = getattr(quota, name)
        # Fractions of cores are added up in floating point; a billionth of a core is nobody's quota.
        if most is not None and value > most + 1e-9:
            raise LimitExceeded(
                f"this create would bring the {whose} to {value:g} {name}, over its quota of {most:g}",
                code="quota_exceeded",
                hint="Kill a sandbox, ask for less, or have the quota raised.",
            )
    if quota.creates_per_minute is not None and holding.creates >= quota.creates_per_minute:
        raise LimitExceeded(
            f"the {whose} has made {holding.creates} sandboxes in the last minute, which is its quota",
            code="rate_limited",
            hint="Wait as long as `Retry-After` says.",
            retry_after_s=max(0.001, 60.0 - holding.oldest_create_age_s),
        )
