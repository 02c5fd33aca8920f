"""E2B's clients, unmodified, do on a real server what their users do with them, method by method."""

from __future__ import annotations

import pytest

from tests.compat.e2b.clients import Client, cases_of, run_once
from tests.compat.e2b.runs import RUNS

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    ("client", "mode", "program", "case"),
    [
        pytest.param(client, mode, program, case, id=f"{client.language}-{client.age}-{mode}-{program}-{case}")
        for client, mode, program in RUNS
        for case in cases_of(program)
    ],
)
def test_a_client_works(client: Client, mode: str, program: str, case: str, request: pytest.FixtureRequest) -> None:
    """Each case of a program is one test; they run in one process, as a user's program would."""
    environment: dict[str, str] = request.getfixturevalue(mode)
    outcome = run_once(client, program, tuple(sorted(environment.items()))).outcomes.get(case)
    assert outcome == "ok", outcome
