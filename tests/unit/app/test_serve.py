"""A whole server on a port, over a node in memory: start, discovery, lock, stop, drain."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx2
import pytest

from atoll.app.serve import data_lock, listening, serve
from atoll.app.settings import Settings, load
from atoll.model import limits
from atoll.model.errors import Conflict, Unavailable
from atoll.testing.nodes import FakeNode
from atoll.wire.node import NodePort

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def settings_of(data: Path) -> Settings:
    return load({"data": data, "listen": "127.0.0.1:0", "stop_s": 1}, {"ATOLL_CONFIG": "/nonexistent"})


@asynccontextmanager
async def serving(data: Path, node: FakeNode, *, drain: bool = False) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of a server that is stopped by SIGTERM at the end."""

    @asynccontextmanager
    async def open_node(_: Settings) -> AsyncIterator[NodePort]:
        async with node.running():
            yield node

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve, settings_of(data), drain, open_node)
        with anyio.fail_after(10):
            while not (data / "server.json").exists():
                await anyio.sleep(0.01)
        where = json.loads((data / "server.json").read_text())
        assert where["pid"] == os.getpid()
        headers = {"authorization": f"Bearer {(data / 'key').read_text().strip()}"}
        async with httpx2.AsyncClient(base_url=where["url"], headers=headers) as client:
            yield client
        if (data / "server.json").exists():
            os.kill(os.getpid(), signal.SIGTERM)


async def test_a_stop_loses_no_sandbox_and_a_restart_finds_it(tmp_path: Path) -> None:
    node = FakeNode()
    async with serving(tmp_path, node) as client:
        made = (await client.post("/v1/sandboxes", json={"name": "kept"})).json()["sandbox"]
    assert set(node.guests) == {made["id"]}
    assert not (tmp_path / "server.json").exists()
    assert (tmp_path / "atoll.db").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    async with serving(tmp_path, node) as client:
        assert (await client.get("/v1/sandboxes/kept")).json()["state"] == "running"
        answer = await client.post("/v1/sandboxes/kept/processes", json={"cmd": "echo hi"})
        assert '"exited"' in answer.text


async def test_a_drain_kills_all(tmp_path: Path) -> None:
    node = FakeNode()
    async with serving(tmp_path, node, drain=True) as client:
        await client.post("/v1/sandboxes", json={})
        assert len(node.guests) == 1
    assert node.guests == {}


async def test_a_stop_does_not_wait_for_a_stream_without_end(tmp_path: Path) -> None:
    node = FakeNode()
    with anyio.fail_after(15):
        async with serving(tmp_path, node) as client:
            await client.post("/v1/sandboxes", json={"name": "a"})
            request = client.build_request("POST", "/v1/sandboxes/a/processes", json={"cmd": "echo hi; sleep 1000"})
            response = await client.send(request, stream=True)
            assert response.status_code == 200
            os.kill(os.getpid(), signal.SIGTERM)
            with anyio.fail_after(10):
                while (tmp_path / "server.json").exists():
                    await anyio.sleep(0.01)
            await response.aclose()
    assert len(node.guests) == 1


async def test_many_who_wait_for_a_disk_keep_nobody_waiting(tmp_path: Path) -> None:
    """More than the threads that a loop has by itself on this machine."""
    go_on = threading.Event()
    async with serving(tmp_path, FakeNode()), anyio.create_task_group() as waiting:
        for _ in range((os.cpu_count() or 1) + 8):
            waiting.start_soon(asyncio.to_thread, go_on.wait)
        try:
            await anyio.sleep(0.01)
            with anyio.fail_after(5):
                assert await asyncio.to_thread(tmp_path.exists)
        finally:
            go_on.set()


async def test_a_client_that_hangs_up_ends_its_stream(tmp_path: Path) -> None:
    node = FakeNode()
    async with serving(tmp_path, node) as client:
        made = (await client.post("/v1/sandboxes", json={"name": "a"})).json()["sandbox"]
        body = {"cmd": "echo hi; sleep 1000"}
        async with client.stream("POST", "/v1/sandboxes/a/processes", json=body) as response:
            async for _ in response.aiter_raw():
                break
            assert node.guests[made["id"]].streams == 1
        with anyio.fail_after(2):
            while node.guests[made["id"]].streams:
                await anyio.sleep(0.005)


async def test_a_second_server_on_the_same_data_is_refused(tmp_path: Path) -> None:
    with data_lock(tmp_path), pytest.raises(Conflict) as caught:
        await serve(settings_of(tmp_path))
    assert caught.value.code == "data_in_use"
    with data_lock(tmp_path):  # and the lock is free again
        pass


def test_a_port_that_is_taken_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(Unavailable) as caught:
        with listening(f"127.0.0.1:{taken.getsockname()[1]}"):
            pass
    assert caught.value.code == "cannot_listen"


def test_a_client_that_vanished_without_a_word_is_noticed() -> None:
    """A stream may be silent for days; the kernel asks whether somebody is there."""
    with listening("127.0.0.1:0") as listener, socket.create_connection(listener.getsockname()):
        with listener.accept()[0] as accepted:
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == limits.HTTP_PROBE_AFTER_S


def test_the_server_may_open_as_many_files_as_its_limit_allows() -> None:
    """Whoever starts it from a shell has 1024, and some sixty sandboxes use those up."""
    code = (
        "import resource as r; r.setrlimit(r.RLIMIT_NOFILE, (256, 3000))\n"
        "from atoll.app.serve import descriptors_raise; descriptors_raise(); print(r.getrlimit(r.RLIMIT_NOFILE))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout
    assert said.splitlines()[-1] == "(3000, 3000)"
