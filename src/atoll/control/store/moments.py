"""Moments as the database holds them: whole microseconds since 1970, in UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_us(moment: datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND


def from_us(value: int) -> datetime:
    return _EPOCH + value * _MICROSECOND


def to_us_or_none(moment: datetime | None) -> int | None:
    return None if moment is None else to_us(moment)


def from_us_or_none(value: int | None) -> datetime | None:
    return None if value is None else from_us(value)
