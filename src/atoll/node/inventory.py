"""The host inventory: all that one server owns on its host, listed by looking, not by remembering.

Start-up compares it with the journal, `atoll doctor --gc` removes what nobody knows, and tests hold it against the
database: after a sandbox has ended, nothing in this list may name it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from atoll.node import spawn
from atoll.node.cgroups import Cgroups
from atoll.node.host import Host
from atoll.node.names import HostNames
from atoll.node.network import netns


@dataclass(frozen=True, slots=True, order=True)
class Item:
    """One thing on the host. `box` is the box (or, for namespaces and links, the slot) that it is part of, if any."""

    kind: str
    name: str
    box: str = ""


def survey(names: HostNames, cgroups: Cgroups) -> list[Item]:
    """Everything of this server that is on the host now."""
    items = [
        *_processes(names, cgroups),
        *_namespaces(names),
        *(Item("cgroup", names.cgroup(box), box) for box in cgroups.children(names.cgroup_parent)),
        *_mounts(names),
        *_loops(names),
        *_files(names),
    ]
    return sorted(set(items))


def orphans(items: Collection[Item], boxes: Collection[str], slots: Collection[str]) -> list[Item]:
    """What belongs to a box or a slot that nobody knows; pure."""
    return [item for item in items if item.box and item.box not in boxes and item.box not in slots]


async def sweep(host: Host, boxes: Collection[str], slots: Collection[str]) -> list[Item]:
    """Remove all that belongs to no known box or slot, and say what it was. Idempotent."""
    found = orphans(survey(host.names, host.cgroups), boxes, slots)
    for item in found:
        if item.kind == "process":
            with suppress(ProcessLookupError):
                os.kill(int(item.name.split()[0]), signal.SIGKILL)
    for item in found:
        if item.kind == "runtime":
            await host.driver.discard(item.box, host.names.run)
    for item in found:
        if item.kind == "cgroup":
            await asyncio.to_thread(host.cgroups.remove, item.name)
        elif item.kind == "disk":
            await asyncio.to_thread(host.pool.disk_delete, item.box)
        elif item.kind in ("folder", "journal"):
            await asyncio.to_thread(_delete, Path(item.name))
    for pair in netns.pairs(host.names):
        if pair.slot not in slots:
            await netns.pair_remove(pair)
    return found


async def sweep_nameless(host: Host) -> list[Item]:
    """Remove images of paused sandboxes that do not say any more whose they are, and say which they were."""
    found = [Item("image", image_id) for image_id in await asyncio.to_thread(host.images.nameless)]
    for item in found:
        await asyncio.to_thread(host.images.remove, item.name)
    return found


def unmount_below(folder: Path) -> None:
    """Take down what is mounted below a folder that is about to go; runsc keeps a namespace mounted in its root."""
    for item in sorted(_mounts_below(folder), reverse=True):
        spawn.run(["umount", item], check=False)


def _processes(names: HostNames, cgroups: Cgroups) -> Iterator[Item]:
    for box in cgroups.children(names.cgroup_parent):
        for pid in cgroups.pids(names.cgroup(box)):
            yield Item("process", f"{pid} {_program(pid)}", box)
    # A sentry that died before it joined its group, or was moved: runsc's root is on its command line, then its box.
    root = str(names.runsc_root)
    for entry in os.listdir("/proc"):
        if entry.isdigit() and root in (words := _cmdline(int(entry))):
            box = next((word for word in reversed(words) if word.startswith("bx")), "")
            yield Item("process", f"{entry} {_program(int(entry))}", box)


def _namespaces(names: HostNames) -> Iterator[Item]:
    for pair in netns.pairs(names):
        for name in (pair.inner, pair.outer):
            yield Item("netns", name, pair.slot)
            for link in netns.links(name):
                if link != "lo":
                    yield Item("link", f"{name}:{link}", pair.slot)


def _mounts(names: HostNames) -> Iterator[Item]:
    return (Item("mount", target) for target in _mounts_below(names.data))


def _mounts_below(folder: Path) -> list[str]:
    targets = [line.split(" ")[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return [target for target in targets if Path(target).is_relative_to(folder)]


def _loops(names: HostNames) -> Iterator[Item]:
    for file in Path("/sys/block").glob("loop*/loop/backing_file"):
        with suppress(FileNotFoundError):
            if Path(file.read_text().strip()).is_relative_to(names.data):
                yield Item("loop", f"/dev/{file.parts[3]}")


def _files(names: HostNames) -> Iterator[Item]:
    for disk in _entries(names.data / "pool/sandboxes"):
        yield Item("disk", str(disk), disk.name)
    for folder in _entries(names.run / "boxes"):
        yield Item("folder", str(folder), folder.name)
    for state in _entries(names.runsc_root):
        kind = "socket" if state.is_socket() else "runtime"
        yield Item(kind, str(state), _box_in(state.name))
    for record in _entries(names.journal):
        yield Item("journal", str(record), record.name.partition(".")[0])


def _box_in(name: str) -> str:
    """runsc names its files after the container: `<id>_sandbox:<id>.state`, `runsc-<id>.sock`."""
    start = name.find("bx")
    return name[start : start + 38] if start >= 0 else ""


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except FileNotFoundError:
        return []


def _delete(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _cmdline(pid: int) -> list[str]:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return []
    # `--root=X` and `--root X` both occur, depending on which of runsc's processes it is.
    return [word.removeprefix("--root=") for word in words]


def _program(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return "?"
