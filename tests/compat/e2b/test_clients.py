"""E2B's clients, unmodified, do on a real server what their users do with them, method by method."""

from __future__ import annotations

import functools

import pytest

from tests.compat.e2b.clients import WHOLE, Client, cases_of

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

NEW = Client("python", "new")
NODE = Client("node", "new")
PART = [(NEW, "headers_mode", "sync.py"), (NODE, "headers_mode", "main.mjs")]
REST = [
    (NEW, "headers_mode", "aio.py"),
    (NEW, "headers_mode", "states.py"),
    (NEW, "headers_mode", "options.py"),
    (NEW, "headers_mode", "aio_options.py"),
    (NODE, "headers_mode", "options.mjs"),
    (NEW, "headers_mode", "volumes.py"),
    (NODE, "headers_mode", "volumes.mjs"),
    (NEW, "domain_mode", "domain.py"),
    (Client("python", "old"), "domain_mode", "domain.py"),
    (NODE, "domain_mode", "main.mjs"),
    (Client("node", "old"), "domain_mode", "main.mjs"),
]
RUNS = PART + REST if WHOLE else PART


@functools.cache
def _outcomes(client: Client, program: str, mode: str, environment: tuple[tuple[str, str], ...]) -> dict[str, str]:
    return client.run(program, dict(environment))


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
    outcome = _outcomes(client, program, mode, tuple(sorted(environment.items()))).get(case)
    assert outcome == "ok", outcome
