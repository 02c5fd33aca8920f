"""Rates of requests: bursts pass, more does not, and time heals."""

from __future__ import annotations

import pytest

from atoll.control.authz import ALL_SCOPES, Principal
from atoll.control.rates import Rates
from atoll.model import limits
from atoll.model.errors import LimitExceeded
from atoll.model.quota import Quota


def caller(key: float | None = None, tenant: float | None = None, key_id: str = "ak") -> Principal:
    return Principal(
        "me",
        key_id,
        ALL_SCOPES,
        key_quota=Quota(requests_per_second=key),
        tenant_quota=Quota(requests_per_second=tenant),
    )


def test_without_a_rate_nothing_is_counted() -> None:
    assert Rates().take(caller()) is None


def test_a_burst_passes_and_then_it_is_the_rate() -> None:
    now = [0.0]
    rates = Rates(lambda: now[0])
    left = [rates.take(caller(key=5)) for _ in range(10)]
    assert [one.left for one in left if one] == list(range(9, -1, -1))
    with pytest.raises(LimitExceeded) as caught:
        rates.take(caller(key=5))
    assert caught.value.retry_after_s == pytest.approx(0.2)
    now[0] = 0.2
    rates.take(caller(key=5))
    with pytest.raises(LimitExceeded):
        rates.take(caller(key=5))


def test_a_tenant_shares_its_rate_among_its_keys() -> None:
    rates = Rates(lambda: 0.0)
    rates.take(caller(tenant=1, key_id="a"))
    rates.take(caller(tenant=1, key_id="b"))
    with pytest.raises(LimitExceeded):
        rates.take(caller(tenant=1, key_id="c"))


def test_a_refused_request_costs_nothing_of_the_other_rate() -> None:
    rates = Rates(lambda: 0.0)
    for _ in range(5):
        with pytest.raises(LimitExceeded):
            rates.take(caller(key=10, tenant=0))
    allowed = rates.take(caller(key=10))
    assert allowed is not None
    assert allowed.left == 19


def test_only_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "RATES_KEPT_MAX", 10)
    rates = Rates(lambda: 0.0)
    for number in range(100):
        rates.take(caller(key=1, key_id=f"ak{number}"))
    assert len(rates._buckets) == 10
