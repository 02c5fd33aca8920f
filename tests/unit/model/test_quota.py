"""Quotas: what fits, what does not, and what makes no sense."""

from __future__ import annotations

import pytest

from atoll.model.errors import InvalidArgument, LimitExceeded
from atoll.model.quota import Holding, Quota, check_create
from atoll.model.resources import Resources

ONE = Resources(cpu=1, memory_bytes=100, disk_bytes=100)


@pytest.mark.parametrize(
    "quota", [Quota(sandboxes=2), Quota(cpu=2), Quota(memory_bytes=200), Quota(disk_bytes=200), Quota()]
)
def test_the_last_place_is_given(quota: Quota) -> None:
    check_create("tenant", quota, Holding(1, 1.0, 100, 100), ONE)
    if quota != Quota():
        with pytest.raises(LimitExceeded) as caught:
            check_create("tenant", quota, Holding(2, 2.0, 200, 200), ONE)
        assert caught.value.code == "quota_exceeded"


def test_fractions_of_cores_add_up() -> None:
    check_create("key", Quota(cpu=0.3), Holding(cpu=0.1 + 0.1), Resources(cpu=0.1))


def test_creates_are_counted_by_the_minute() -> None:
    with pytest.raises(LimitExceeded) as caught:
        check_create("key", Quota(creates_per_minute=3), Holding(creates=3, oldest_create_age_s=50), ONE)
    assert (caught.value.code, caught.value.retry_after_s) == ("rate_limited", 10)


@pytest.mark.parametrize("quota", [Quota(sandboxes=-1), Quota(cpu=float("nan")), Quota(memory_bytes=2**60)])
def test_a_quota_must_be_a_number_that_can_be_kept(quota: Quota) -> None:
    with pytest.raises(InvalidArgument):
        quota.checked()
