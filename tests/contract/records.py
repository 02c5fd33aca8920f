"""Sandboxes on record, as the tests of databases need them."""

from __future__ import annotations

from datetime import timedelta

from atoll.control.store.creates import Allowance
from atoll.control.store.sandboxes import Record
from atoll.model import ids
from atoll.model.lifecycle import State
from atoll.model.quota import Quota
from atoll.model.resources import Resources
from atoll.model.sandbox import Sandbox
from atoll.model.usage import Prices
from atoll.testing.clock import START

NO_QUOTA = Allowance(Quota(), Quota(), Prices())


def record(number: int, *, name: str | None = None, owner: str = "me", age_s: int = 0) -> Record:
    created = START - timedelta(seconds=age_s)
    sandbox = Sandbox(
        id=ids.mint(ids.SANDBOX, 0, number.to_bytes(16, "big")),
        template="code",
        name=name,
        metadata={"n": str(number)},
        resources=Resources(cpu=0.5),
        state=State.CREATING,
        created_at=created,
        started_at=None,
        deadline_at=created + timedelta(microseconds=1_000_001),
        ended_at=None,
        end_reason=None,
        end_detail="",
    )
    return Record(owner, sandbox)
