"""E2B's header transforms and secrets through real TLS, with a server outside that tells what it was asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from atoll.testing.server import Server
from tests import upstream
from tests.compat.e2b.clients import Client, cases_of
from tests.compat.e2b.conftest import environment_of
from tests.upstream import TLS_PORT

pytestmark = [pytest.mark.real, pytest.mark.timeout(200)]

PROGRAM = "transforms.py"


@pytest.fixture(scope="module")
def done(
    make_data_dir: Callable[[], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[dict[str, str], list[str]]]:
    """What became of each case, and the requests that the server outside got."""
    folder = tmp_path_factory.mktemp("upstream")
    with upstream.upstream(folder) as servers:
        server = Server(make_data_dir(), servers.settings)
        server.start()
        try:
            environment = environment_of(server, folder) | {"UPSTREAM": f"https://good.test:{TLS_PORT}"}
            outcomes = Client("python", "new").run(PROGRAM, environment).outcomes
            yield outcomes, [*servers.tls.seen, server.log()]
        finally:
            server.close()


@pytest.mark.parametrize("case", cases_of(PROGRAM))
def test_a_client_works(done: tuple[dict[str, str], list[str]], case: str) -> None:
    assert done[0].get(case) == "ok", done[0].get(case)


def test_the_values_arrived_outside_and_nowhere_else(done: tuple[dict[str, str], list[str]]) -> None:
    *seen, log = done[1]
    bearers = [line for request in seen for line in request.splitlines() if line.startswith("Authorization")]
    assert bearers == ["Authorization: Bearer canary-e2b-first", "Authorization: Bearer canary-e2b-second"]
    assert "canary" not in log
