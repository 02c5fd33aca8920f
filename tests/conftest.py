"""Fixtures of the whole suite: a set-up host, data directories on its disks, and real servers."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from atoll.node import inventory
from atoll.node.disks import btrfs
from atoll.node.disks.pool import Pool
from atoll.node.install.layout import Layout
from tests.server import Server

TEMPLATES = ("base", "code")


@pytest.fixture(scope="session")
def layout() -> Layout:
    """The host that `make setup` prepared."""
    layout = Layout.from_environment()
    if os.geteuid() != 0 or not (layout.data / "pool/templates/code.json").exists():
        pytest.fail("these tests need root and a set-up host: run `make setup`, or `make test`, which does it")
    return layout


@pytest.fixture(scope="session")
def pool(layout: Layout) -> Pool:
    return Pool.open(layout.data)


@pytest.fixture(scope="session")
def make_data_dir(layout: Layout, pool: Pool) -> Iterator[Callable[[], Path]]:
    """New data directories. They lie on the host's pool, so their templates are snapshots that cost nothing."""
    made: list[Path] = []

    def make() -> Path:
        folder = pool.root / "tests" / secrets.token_hex(4)
        folder.mkdir(parents=True)
        made.append(folder)
        for name in TEMPLATES:
            own = Pool.open(folder).root / "templates"
            btrfs.snapshot_create(pool.root / "templates" / name, own / name, read_only=True)
            shutil.copy(pool.root / "templates" / f"{name}.json", own / f"{name}.json")
        return folder

    yield make
    for folder in made:
        data_dir_remove(folder)


def data_dir_remove(folder: Path) -> None:
    inventory.unmount_below(folder)
    for kind in ("templates", "sandboxes", "snapshots", "volumes"):
        for entry in (folder / "pool" / kind).iterdir() if (folder / "pool" / kind).exists() else ():
            if btrfs.is_subvolume(entry):
                btrfs.subvolume_delete(entry)
    shutil.rmtree(folder)


@pytest.fixture
def data_dir(make_data_dir: Callable[[], Path]) -> Path:
    return make_data_dir()


@pytest.fixture
def make_server(make_data_dir: Callable[[], Path]) -> Iterator[Callable[..., Server]]:
    """Servers that a test may hurt; each is drained at the end, and must then have left nothing."""
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
