"""`atoll tenant` and `atoll key`: who may have what, in words."""

from __future__ import annotations

from .conftest import Run


def test_what_a_tenant_may_have_and_has(served: Run) -> None:
    served(
        "tenant", "create", "team", "--memory-bytes", "2147483648", "--budget-s", "60", "--requests-per-second", "50"
    )
    key = served("key", "create", "first", "--scope", "admin", "--tenant", "team").stdout.strip()
    assert served("sandbox", "create", ATOLL_API_KEY=key).returncode == 0
    shown = served("tenant", "info", "team", ATOLL_API_KEY=key).stdout
    assert "memory=2GiB requests_per_second=50 budget_s=60" in shown
    assert "has    1 sandboxes, 2 cores, 1GiB of memory, 10GiB of disk" in shown
    assert "operator_only" in served("tenant", "ls", ATOLL_API_KEY=key).stderr


def test_a_key_shows_what_it_may_have_and_until_when(served: Run) -> None:
    made = served("key", "create", "ci", "--scope", "write", "--expires", "2h", "--sandboxes", "3").stdout.strip()
    assert served("sandbox", "ls", ATOLL_API_KEY=made).returncode == 0
    (row,) = [line for line in served("key", "ls").stdout.splitlines() if " ci " in line]
    assert "1h59m" in row
    assert row.endswith("sandboxes=3")
    assert "-0s" not in row


def test_a_key_has_no_budget(served: Run) -> None:
    assert served("key", "create", "x", "--budget-s", "5").returncode == 2
