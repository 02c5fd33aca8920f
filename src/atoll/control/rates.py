"""Rates of requests: a bucket for each key and each tenant that has one, which fills with time."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from atoll.control.authz import Principal
from atoll.model import limits
from atoll.model.errors import LimitExceeded
from atoll.model.event import Shown


@dataclass(slots=True)
class _Bucket:
    left: float
    at_s: float


@dataclass(frozen=True, slots=True)
class Allowed:
    """What a caller may still ask: so many requests now, and all of its burst again after so long."""

    most: int
    left: int
    full_in_s: float


class Rates:
    """The buckets of one server process. A bucket holds two seconds' worth, at least one request."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def take(self, principal: Principal) -> Allowed | None:
        """Count one request; LimitExceeded if there is none left. None if the caller has no rate."""
        buckets = self._of(principal)
        for bucket, rate in buckets:
            if bucket.left < 1:
                raise LimitExceeded(
                    f"more than {rate:g} requests per second",
                    code="rate_limited",
                    hint="Wait as long as `Retry-After` says.",
                    retry_after_s=(1 - bucket.left) / rate if rate else limits.HOUSEKEEPING_S,
                )
        for bucket, _ in buckets:
            bucket.left -= 1
        return _least(buckets)

    def left(self, principal: Principal) -> Allowed | None:
        """What a caller may still ask, without counting anything."""
        return _least(self._of(principal))

    def _of(self, principal: Principal) -> list[tuple[_Bucket, float]]:
        now_s = self._clock_s()
        # Strangers have as much as the owner, and not out of the same bucket: they could keep the owner out with that.
        crowd = "strangers of" if principal.by == Shown.NOTHING else "tenant"
        return [
            (self._filled(whose, rate, now_s), rate)
            for whose, rate in (
                (f"key {principal.key_id}", principal.key_quota.requests_per_second),
                (f"{crowd} {principal.owner}", principal.tenant_quota.requests_per_second),
            )
            if rate is not None
        ]

    def _filled(self, whose: str, rate: float, now_s: float) -> _Bucket:
        most = _burst(rate)
        bucket = self._buckets.setdefault(whose, _Bucket(most, now_s))
        self._buckets.move_to_end(whose)
        while len(self._buckets) > limits.RATES_KEPT_MAX:
            self._buckets.popitem(last=False)
        bucket.left = min(most, bucket.left + (now_s - bucket.at_s) * rate)
        bucket.at_s = now_s
        return bucket


def _burst(rate: float) -> float:
    return 0.0 if rate == 0 else max(1.0, rate * limits.REQUEST_BURST_S)


def _least(buckets: list[tuple[_Bucket, float]]) -> Allowed | None:
    return min((_allowed(bucket, rate) for bucket, rate in buckets), key=lambda one: one.left, default=None)


def _allowed(bucket: _Bucket, rate: float) -> Allowed:
    most = _burst(rate)
    full_in_s = (most - bucket.left) / rate if rate else limits.HOUSEKEEPING_S
    return Allowed(math.floor(most), math.floor(bucket.left), full_in_s)
