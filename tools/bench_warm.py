"""A server with a pool to measure creates on, and the moment at which that is fair."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench_bare import Bare

from atoll import Sandbox
from atoll.model import limits
from atoll.node import templates, warmimages
from atoll.node.images import Images
from atoll.node.install.layout import Layout
from atoll.node.names import HostNames
from atoll.testing import scratch
from atoll.testing.server import Server

_FULL_S_MAX = 60.0


@contextmanager
def pool_server(size: int) -> Iterator[Server]:
    """A server of its own with so many sandboxes waiting for an owner; 0 is none."""
    folder = scratch.data_dir_create(Layout.from_environment())
    server = Server(folder, {"ATOLL_WARM_SIZE": str(size)})
    try:
        server.start()
        yield server
    finally:
        server.close()
        scratch.data_dir_remove(folder)


def wait_live(server: Server, template: str, live: int, shells: int = 0, within_s: float = _FULL_S_MAX) -> None:
    """Until so many wait for an owner."""
    deadline_s = time.monotonic() + within_s
    while True:
        count = server.status()["warm"].get(template, {"live": 0, "shells": 0})
        if count["live"] >= live and count["shells"] >= shells:
            return
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"the pool does not reach {live}")
        time.sleep(0.02)


def demand(server: Server, template: str, count: int, within_s: float = _FULL_S_MAX) -> None:
    """Ask for so many that the pool learns to hold so many, and wait until it does: then it makes no more."""
    wait_live(server, template, 1, 0, within_s)
    for _ in range(count):
        server.create(template).kill()
    wait_live(server, template, count, 0, within_s)


def wait_rest(server: Server, template: str, live: int, shells: int = 0, within_s: float = _FULL_S_MAX) -> None:
    """Until the pool is full, and rests: two processors make one sandbox or hand one over, not both."""
    wait_live(server, template, live, shells, within_s)
    time.sleep(2 * limits.WARM_REST_S + 2 * limits.CONTEXT_REWARM_S)  # and has started what it starts later


@contextmanager
def emptied(server: Server, template: str) -> Iterator[None]:
    """While all that waited of a template has owners. What is made now is made on the spot."""
    taken: list[Sandbox] = [server.create(template) for _ in range(server.status()["warm"][template]["live"])]
    try:
        yield
    finally:
        for one in taken:
            one.kill()
            one.close()


def bare_restore_ms(bare: Bare, server: Server, template: str) -> float:
    """The warm image of a template, restored by runsc alone into a shell, until its first answer."""
    host = bare._host
    images = Images(HostNames.of(server.data), host.pool)
    known = next(one for one in templates.known(host.pool) if one.name == template)
    return bare.restore_ms(images.find(warmimages.image_id(host, known)), images)
