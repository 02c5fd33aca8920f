"""Fixtures of the whole suite: a set-up host, data directories on its disks, and real servers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

from atoll.node.install.layout import Layout
from atoll.testing import scratch
from atoll.testing.server import Server
from tests import upstream
from tests.upstream import Upstream

# The same examples each time, so that a change is judged by what it changed; `make fuzz` looks for new ones.
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None)
hypothesis.settings.register_profile("fuzz", max_examples=2_000, deadline=None, print_blob=True)
hypothesis.settings.load_profile("repeatable")

# Programs that tests start are compiled once, also where the environment says otherwise: half of each start was that.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ.setdefault("PYTHONPYCACHEPREFIX", str(Layout.from_environment().cache / "pycache"))


@pytest.fixture(scope="session")
def layout() -> Layout:
    """The host that `make setup` prepared."""
    layout = Layout.from_environment()
    if os.geteuid() != 0 or not (layout.data / "pool/templates/code.json").exists():
        pytest.fail("these tests need root and a set-up host: run `make setup`, or `make test`, which does it")
    return layout


@pytest.fixture(scope="session")
def make_data_dir(layout: Layout) -> Iterator[Callable[[], Path]]:
    """New data directories; all are removed at the end."""
    made: list[Path] = []

    def make() -> Path:
        made.append(scratch.data_dir_create(layout))
        return made[-1]

    yield make
    for folder in made:
        scratch.data_dir_remove(folder)


@pytest.fixture
def data_dir(make_data_dir: Callable[[], Path]) -> Path:
    return make_data_dir()


@pytest.fixture
def make_server(make_data_dir: Callable[[], Path]) -> Iterator[Callable[..., Server]]:
    """Servers that a test may hurt; each must have left nothing when it is closed."""
    servers: list[Server] = []

    def make(data: Path | None = None, **environment: str) -> Server:
        server = Server(data or make_data_dir(), environment)
        servers.append(server)
        server.start()
        return server

    yield make
    for server in servers:
        server.close()


@pytest.fixture(scope="module")
def server(make_data_dir: Callable[[], Path]) -> Iterator[Server]:
    """One server for the tests of a module that do it no harm."""
    server = Server(make_data_dir(), {})
    server.start()
    yield server
    server.close()


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Upstream]:
    """Servers that sandboxes may be allowed to reach, and the DNS that knows them."""
    with upstream.upstream(tmp_path_factory.mktemp("upstream")) as running:
        yield running
