"""Probes from inside: a real sandbox is made, hostile acts are tried in it, and the host is looked at afterwards.

A probe passes by what the host shows (a canary file unchanged, a listener not reached), and by the act's own failure
where the host cannot see it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import secrets
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from atoll.model.errors import AtollError
from atoll.model.resources import Resources
from atoll.node import guestapp, inventory, templates
from atoll.node.findings import Finding, fail, ok
from atoll.node.guestlink import GuestLink
from atoll.node.host import Host
from atoll.node.hostopen import host_open
from atoll.node.images import Boot, Image
from atoll.node.install.layout import Layout, loader_name
from atoll.node.instance import Instance
from atoll.node.journal import Entry
from atoll.node.names import HostNames
from atoll.node.network import netns
from atoll.node.network.plan import Pair
from atoll.node.steps import Steps
from atoll.wire import guest as wire

_SCRIPT = Path(__file__).with_name("probe_script.py")
_PROBED = f"{guestapp.MOUNT}/atoll/__init__.py"
_TEMPLATE = "base"
_IMAGE = "doctor"
_HINT = "do not run untrusted code here; use the runsc that `make setup` installs"


async def run(layout: Layout) -> list[Finding]:
    """All probes, in a sandbox of their own."""
    host = await _host(layout)
    # What an earlier examination left when it was killed.
    await inventory.sweep(host, boxes=(), slots=())
    try:
        async with _sandbox(host, _entry(host), templates.find(host.pool, _TEMPLATE)) as instance:
            findings = await _probe_inside(host, instance)
            findings.append(await _probe_checkpoint(host, instance))
        return findings
    except AtollError as error:
        return [fail("sandbox", f"{error.message} ({error.code}) {error.detail[-300:]}", "see the log of the server")]
    finally:
        await inventory.sweep(host, boxes=(), slots=())
        await asyncio.to_thread(_forget, host)


def judge(found: dict[str, Any], *, bind_intact: bool, reached: bool) -> list[Finding]:
    """What the acts inside mean, together with what the host saw; pure."""
    binds = [act for act, result in found["read_only_binds"].items() if result == "done"]
    devices = [name for name, result in found["devices"].items() if result == "done"]
    sockets = [name for name, result in found["raw_sockets"].items() if result == "done"]
    nested = [name for name, result in found["raw_sockets_in_user_namespace"].items() if result == "done"]
    connected = [name for name, result in found["network"].items() if result == "done"]
    return [
        _verdict("read-only mounts", not binds and bind_intact, "every write was refused", binds),
        _verdict("device nodes", not devices, "no device of the host can be opened", devices),
        _verdict("raw sockets", not sockets and not nested, "refused, also in a user namespace", sockets + nested),
        _verdict("environ of process 1", found["environ_of_init"] != "done", "not readable by a user", ["readable"]),
        _verdict("network", not connected and not reached, "no address can be reached", connected),
        _verdict("host's files and processes", _unseen(found), "out of sight", ["visible"]),
        _verdict("kernel", "gvisor" in found["kernel"], found["kernel"], [found["kernel"]]),
    ]


def _unseen(found: dict[str, Any]) -> bool:
    # Process 1, its workers and the script itself: a handful. A host has dozens.
    return not found["canary_seen"] and len(found["host_processes"]) < 12


def _verdict(name: str, holds: bool, good: str, bad: list[str]) -> Finding:
    return ok(f"probe: {name}", good) if holds else fail(f"probe: {name}", f"possible: {', '.join(bad)}", _HINT)


async def _probe_inside(host: Host, instance: Instance) -> list[Finding]:
    probed = host.guest_app / "atoll/__init__.py"
    before = _fingerprint(probed)
    with tempfile.NamedTemporaryFile(prefix="atoll-canary-") as canary, _listener() as listener:
        port = listener.getsockname()[1]
        python = wire.runtime_python(guestapp.RUNTIME_MOUNT, loader_name(host.machine))
        argv = [*python, "-I", "-S", "-c", _SCRIPT.read_text(), _PROBED, canary.name, str(port)]
        output = await _output(instance.guest, argv)
        reached = _was_reached(listener)
    found = json.loads(output)
    return judge(found, bind_intact=_fingerprint(probed) == before, reached=reached)


async def _probe_checkpoint(host: Host, instance: Instance) -> Finding:
    """Memory to disk and back: the same guest answers from a second box, on a copy of the disk."""
    name = "probe: checkpoint and restore"
    try:
        image = await instance.capture(_IMAGE)
        entry = _entry(host, image.boot)
        async with _sandbox(host, entry, host.images.disk_path(image.id), image) as copy:
            await copy.guest.call("ping")
        return ok(name, "a sandbox was brought back from its image")
    except AtollError as error:
        return fail(name, f"{error.message}: {error.detail[-200:]}", "snapshots and pause cannot be used")
    finally:
        await asyncio.to_thread(host.images.remove, _IMAGE)


async def _output(guest: GuestLink, argv: list[str]) -> bytes:
    collected = bytearray()
    async with guest.stream("process.start", {"argv": argv, "user": "root", "timeout_s": 30}) as stream:
        async for message in stream:
            if isinstance(message, wire.Data):
                collected += message.payload
    return bytes(collected[:65536])


async def _host(layout: Layout) -> Host:
    """The server's own disks, but names of its own, so that a running server is left alone."""
    return await host_open(layout, names=HostNames.of(layout.data / "doctor"))


def _entry(host: Host, boot: Boot | None = None) -> Entry:
    return host.entry("doctor", _TEMPLATE, Resources(), slot=secrets.token_hex(4), hostname="doctor", boot=boot)


@contextlib.asynccontextmanager
async def _sandbox(host: Host, entry: Entry, disk: Path, image: Image | None = None) -> AsyncIterator[Instance]:
    await netns.pair_create(Pair.of(host.names, entry.slot))
    instance = await Instance.create(host, entry, disk, Steps(), env={}, image=image)
    try:
        yield instance
    finally:
        await instance.demolish()


def _forget(host: Host) -> None:
    host.cgroups.remove(host.names.cgroup_parent)
    inventory.unmount_below(host.names.data)
    shutil.rmtree(host.names.data, ignore_errors=True)


def _listener() -> socket.socket:
    """A port of the host that must not be reached: on all its addresses, as a careless service would be."""
    listener = socket.create_server(("0.0.0.0", 0))  # noqa: S104
    listener.setblocking(False)
    return listener


def _was_reached(listener: socket.socket) -> bool:
    try:
        connection, _ = listener.accept()
    except BlockingIOError:
        return False
    connection.close()
    return True


def _fingerprint(path: Path) -> tuple[str, int, int]:
    status = path.stat()
    return hashlib.sha256(path.read_bytes()).hexdigest(), status.st_mode, status.st_mtime_ns
