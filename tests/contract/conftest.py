"""What contracts of the database share: one PostgreSQL server for all of them, which starts when it is first needed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from atoll.testing.postgres import Postgres, running


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with running() as server:
        yield server
