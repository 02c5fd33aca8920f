"""Control groups: the limits of a sandbox on CPU, memory and processes, on version 1 and 2 of the kernel's interface.

All processes of one sandbox (sentry, gofer and their children) live in one group, made by us before the runtime starts
and removed by us after it ended; runsc joins a group that is already there and leaves its settings alone. Version 1 has
one tree per controller: a group there is a folder in each of them, also in those we set nothing in, so that runsc finds
all of them and leaves none of its own behind.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from atoll.model import limits
from atoll.model.errors import Internal
from atoll.model.resources import Resources

ROOT = Path("/sys/fs/cgroup")
CPU_PERIOD_US = 100_000
_CONTROLLERS_V1 = frozenset(
    {"blkio", "cpu", "cpuacct", "cpuset", "devices", "freezer", "hugetlb", "memory", "net_cls", "net_prio"}
    | {"perf_event", "pids", "rdma"}
)
_SETTINGS_V1 = ("cpu.cfs_quota_us", "memory.limit_in_bytes", "pids.max")


@dataclass(frozen=True, slots=True)
class Usage:
    """What a group has used so far, and uses now."""

    cpu_s: float
    memory_bytes: int
    processes: int


class MemoryGauge:
    """The memory of one group, kept open to be read often. Reading raises OSError when the group is gone."""

    def __init__(self, used: Path, stat: Path, held: Sequence[str]) -> None:
        self._used = used
        self._used_fd: int | None = None
        self._stat = stat
        self._held = held

    def used_bytes(self) -> int:
        """All of it, also what the kernel only keeps of files because there was room."""
        if self._used_fd is None:
            self._used_fd = os.open(self._used, os.O_RDONLY | os.O_CLOEXEC)
        return int(os.pread(self._used_fd, 64, 0))

    def held_bytes(self) -> int:
        """What its programs hold. Slower: the kernel adds it up for whoever asks."""
        return sum(_field(self._stat, name) for name in self._held)

    def shared_bytes(self) -> int:
        """What its programs hold of shared memory, which is where a sentry has all that runs in it."""
        return _field(self._stat, "shmem")

    def close(self) -> None:
        """Idempotent."""
        fd, self._used_fd = self._used_fd, None
        if fd is not None:
            os.close(fd)


class Cgroups(Protocol):
    """The groups of one server, whatever version the host has. Names are relative: `<parent>/<box>`."""

    version: int

    def create(self, name: str, resources: Resources) -> None:
        """A group whose memory limit is the sandbox's own: runsc reads it at its start, and shows it inside."""
        ...

    def update(self, name: str, resources: Resources) -> None:
        """The limits that hold from now on, with room for the runtime on top of what the sandbox was shown."""
        ...

    def pids(self, name: str) -> list[int]: ...
    def usage(self, name: str) -> Usage: ...
    def cpu_s(self, name: str) -> float:
        """The first of `usage` alone."""
        ...

    def memory_gauge(self, name: str) -> MemoryGauge: ...
    def oom_kills(self, name: str) -> int: ...
    def pids_refused(self, name: str) -> int: ...
    def freeze(self, name: str) -> None: ...
    def thaw(self, name: str) -> None: ...
    def reclaim(self, name: str) -> None:
        """Move its memory to swap, as far as the kernel can. Takes up to a second; on a host without swap, nothing."""
        ...

    def children(self, parent: str) -> list[str]: ...
    def kill(self, name: str) -> None:
        """Send SIGKILL to every process in a group."""
        ...

    def give_way(self, name: str, yes: bool) -> None:
        """While it gives way its processes get what nobody else wants; where the kernel cannot (5.15), as usual."""
        ...

    def remove(self, name: str) -> None: ...


def detect(root: Path = ROOT) -> Cgroups:
    """The interface this host has: version 2 where the whole tree is one, else version 1."""
    if (root / "cgroup.controllers").exists():
        return CgroupsV2(root)
    trees = _trees_v1(root)
    missing = {"cpu", "memory", "pids", "freezer"} - {controller for tree in trees for controller in tree.controllers}
    if missing:
        raise Internal(
            f"this host has no control groups for {', '.join(sorted(missing))}",
            code="missing_cgroups",
            hint="Mount the cgroup2 file system at /sys/fs/cgroup, or enable these controllers in the kernel.",
        )
    return CgroupsV1(trees)


def settings(resources: Resources, version: int, runtime_bytes: int) -> dict[str, str]:
    """What to write into which file; pure.

    The group holds more than the guest's own processes: sentry, gofer and guest need memory and threads too, and must
    not starve when the guest is at its limit, or the whole sandbox dies where one process would have had to.
    """
    memory_bytes = resources.memory_bytes + runtime_bytes
    tasks = resources.pids * 2 + limits.RUNTIME_TASKS
    quota_us = max(1000, round(resources.cpu * CPU_PERIOD_US))
    if version == 2:
        return {"cpu.max": f"{quota_us} {CPU_PERIOD_US}", "memory.max": str(memory_bytes), "pids.max": str(tasks)}
    return dict(zip(_SETTINGS_V1, (str(quota_us), str(memory_bytes), str(tasks)), strict=True))


class CgroupsV2:
    """One tree for all controllers."""

    version = 2

    def __init__(self, root: Path) -> None:
        self._root = root

    def create(self, name: str, resources: Resources) -> None:
        folder = self._root / name
        for parent in (self._root, folder.parent):
            parent.mkdir(exist_ok=True)
            _write(parent / "cgroup.subtree_control", "+cpu +memory +pids")
        folder.mkdir(exist_ok=True)
        self._set(name, settings(resources, 2, 0))

    def update(self, name: str, resources: Resources) -> None:
        self._set(name, settings(resources, 2, limits.RUNTIME_MEMORY_BYTES + limits.MEMORY_BURST_BYTES))

    def _set(self, name: str, values: Mapping[str, str]) -> None:
        for file, value in values.items():
            _write(self._root / name / file, value)

    def pids(self, name: str) -> list[int]:
        return _pids(self._root / name)

    def usage(self, name: str) -> Usage:
        folder = self._root / name
        return Usage(
            cpu_s=self.cpu_s(name),
            memory_bytes=_number(folder / "memory.current"),
            processes=_number(folder / "pids.current"),
        )

    def cpu_s(self, name: str) -> float:
        return _field(self._root / name / "cpu.stat", "usage_usec", exact=True) / 1e6

    def memory_gauge(self, name: str) -> MemoryGauge:
        folder = self._root / name
        return MemoryGauge(folder / "memory.current", folder / "memory.stat", ("anon", "shmem"))

    def oom_kills(self, name: str) -> int:
        return _field(self._root / name / "memory.events", "oom_kill")

    def pids_refused(self, name: str) -> int:
        return _field(self._root / name / "pids.events", "max")

    def freeze(self, name: str) -> None:
        _write(self._root / name / "cgroup.freeze", "1")

    def thaw(self, name: str) -> None:
        _write(self._root / name / "cgroup.freeze", "0")

    def reclaim(self, name: str) -> None:
        used = _number(self._root / name / "memory.current")
        with contextlib.suppress(OSError):  # EAGAIN: less than was asked for, which is fine
            _write(self._root / name / "memory.reclaim", str(used))

    def children(self, parent: str) -> list[str]:
        return _folders(self._root / parent)

    def kill(self, name: str) -> None:
        _kill(self.pids(name))

    def give_way(self, name: str, yes: bool) -> None:
        _give_way(self._root / name, yes)

    def remove(self, name: str) -> None:
        _remove([self._root / name], lambda: self.thaw(name))


@dataclass(frozen=True, slots=True)
class Tree:
    """One mounted hierarchy of version 1 and the controllers in it."""

    path: Path
    controllers: frozenset[str]


class CgroupsV1:
    """A tree per controller."""

    version = 1

    def __init__(self, trees: list[Tree]) -> None:
        self._trees = trees
        self._of: Mapping[str, Path] = {name: tree.path for tree in trees for name in tree.controllers}

    def create(self, name: str, resources: Resources) -> None:
        for tree in self._trees:
            for folder in (tree.path / Path(name).parent, tree.path / name):
                folder.mkdir(exist_ok=True)
                if "cpuset" in tree.controllers:
                    _cpuset_inherit(folder)
        _write(self._of["cpu"] / name / "cpu.cfs_period_us", str(CPU_PERIOD_US))
        self._set(name, settings(resources, 1, 0))

    def update(self, name: str, resources: Resources) -> None:
        self._set(name, settings(resources, 1, limits.RUNTIME_MEMORY_BYTES + limits.MEMORY_BURST_BYTES))

    def _set(self, name: str, values: Mapping[str, str]) -> None:
        for file, value in values.items():
            _write(self._of[file.partition(".")[0]] / name / file, value)

    def pids(self, name: str) -> list[int]:
        return sorted({pid for tree in self._trees for pid in _pids(tree.path / name)})

    def usage(self, name: str) -> Usage:
        return Usage(
            cpu_s=self.cpu_s(name),
            memory_bytes=_number(self._of["memory"] / name / "memory.usage_in_bytes"),
            processes=_number(self._of["pids"] / name / "pids.current"),
        )

    def cpu_s(self, name: str) -> float:
        cpu = self._of.get("cpuacct")
        return _number(cpu / name / "cpuacct.usage", exact=True) / 1e9 if cpu else 0.0

    def memory_gauge(self, name: str) -> MemoryGauge:
        folder = self._of["memory"] / name
        return MemoryGauge(folder / "memory.usage_in_bytes", folder / "memory.stat", ("rss", "shmem"))

    def oom_kills(self, name: str) -> int:
        return _field(self._of["memory"] / name / "memory.oom_control", "oom_kill")

    def pids_refused(self, name: str) -> int:
        return _field(self._of["pids"] / name / "pids.events", "max")

    def freeze(self, name: str) -> None:
        _write(self._of["freezer"] / name / "freezer.state", "FROZEN")

    def thaw(self, name: str) -> None:
        _write(self._of["freezer"] / name / "freezer.state", "THAWED")

    def reclaim(self, name: str) -> None:
        with contextlib.suppress(OSError):  # EBUSY: some of it is in use, which is fine
            _write(self._of["memory"] / name / "memory.force_empty", "0")

    def children(self, parent: str) -> list[str]:
        return sorted({child for tree in self._trees for child in _folders(tree.path / parent)})

    def kill(self, name: str) -> None:
        _kill(_pids(self._of["pids"] / name))

    def give_way(self, name: str, yes: bool) -> None:
        _give_way(self._of["cpu"] / name, yes)

    def remove(self, name: str) -> None:
        _remove([tree.path / name for tree in self._trees], lambda: self.thaw(name))


def _give_way(folder: Path, yes: bool) -> None:
    with contextlib.suppress(OSError):  # of use, and no more
        (folder / "cpu.idle").write_text("1" if yes else "0")


class _Thaw(Protocol):
    def __call__(self) -> None: ...


def _remove(folders: Iterable[Path], thaw: _Thaw) -> None:
    """Kill what is in a group and remove it; idempotent. A frozen group is thawed, or the kill would never arrive."""
    deadline_s = time.monotonic() + limits.CGROUP_REMOVE_S_MAX
    left = [folder for folder in folders if folder.exists()]
    while left:
        with contextlib.suppress(FileNotFoundError):
            thaw()
        _kill({pid for folder in left for pid in _pids(folder)})
        left = [folder for folder in left if not _rmdir(folder)]
        if left and time.monotonic() > deadline_s:
            raise Internal("a sandbox's processes do not end", code="cgroup_busy", detail=", ".join(map(str, left)))
        if left:
            time.sleep(0.005)


def _kill(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _rmdir(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:  # EBUSY: a process in it has not gone yet
        return False
    return True


def _trees_v1(root: Path) -> list[Tree]:
    trees: dict[Path, frozenset[str]] = {}
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, path, kind, options, *_ = line.split(" ")
        if kind == "cgroup" and Path(path).is_relative_to(root):
            words = options.split(",")
            named = {word.removeprefix("name=") for word in words if word.startswith("name=")}
            trees[Path(path)] = frozenset(words) & _CONTROLLERS_V1 | named
    return [Tree(path, controllers) for path, controllers in sorted(trees.items())]


def _cpuset_inherit(folder: Path) -> None:
    # A new cpuset of version 1 is empty, and an empty one cannot be joined.
    for file in ("cpuset.cpus", "cpuset.mems"):
        if not (folder / file).read_text().strip():
            _write(folder / file, (folder.parent / file).read_text().strip())


def _write(path: Path, value: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, value.encode())
    finally:
        os.close(fd)


def _number(path: Path, *, exact: bool = False) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError) as error:  # ENOENT, or ENODEV if the group goes while it is being read
        _check_gone(error, exact)
        return 0


def _field(path: Path, name: str, *, exact: bool = False) -> int:
    try:
        lines = path.read_text().splitlines()
    except OSError as error:  # as above
        _check_gone(error, exact)
        return 0
    return next((int(line.split()[1]) for line in lines if line.split()[0] == name), 0)


def _check_gone(error: OSError | ValueError, exact: bool) -> None:
    """Raise it where nothing is not good enough and the group is there: a total that is taken for zero because no file
    could be opened would be counted once more when the next one can."""
    if exact and isinstance(error, OSError) and error.errno not in (errno.ENOENT, errno.ENODEV):
        raise error


def _pids(folder: Path) -> list[int]:
    try:
        return [int(line) for line in (folder / "cgroup.procs").read_text().split()]
    except (FileNotFoundError, OSError):
        return []


def _folders(path: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in path.iterdir() if entry.is_dir())
    except FileNotFoundError:
        return []
