"""What this host can do: one named check after the other, each with its finding and, if it fails, what to do.

The checks of this file look at the host from outside. Those of `probes` look from inside a real sandbox, made for the
purpose: that a hole is closed is believed only after somebody tried to climb through it.
"""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from atoll.model import limits
from atoll.model.errors import AtollError
from atoll.node import admission, cgroups, probes, templates
from atoll.node.disks import btrfs
from atoll.node.disks.pool import Pool
from atoll.node.findings import Finding, Report, fail, ok, warn
from atoll.node.install import gvisor, swap
from atoll.node.install.layout import Layout

_KERNEL_MIN = (5, 14)  # memory.oom counters, pidfd and cgroup files that we rely on
_KERNEL_SIMPLE_QUOTAS = (6, 7)
_KSM = Path("/sys/kernel/mm/ksm")
_PROGRAMS = ("nft", "mkfs.btrfs", "mount", "umount", "losetup")

Look = Callable[[Layout], Iterator[Finding]]


async def examine(layout: Layout, *, inside: bool = True) -> Report:
    """All checks; `inside` False leaves out the probes in a real sandbox."""
    findings: list[Finding] = []
    for look in _LOOKS:
        findings += await asyncio.to_thread(_all, look, layout)
    if inside and not any(finding.status == "fail" for finding in findings):
        findings += await probes.run(layout)
    return Report(tuple(findings))


def _all(look: Look, layout: Layout) -> list[Finding]:
    """A check that cannot be made is a failed check, with its error as the finding."""
    try:
        return list(look(layout))
    except AtollError as error:
        return [fail(_title(look), error.message, error.hint)]
    except OSError as error:
        return [fail(_title(look), f"cannot be checked: {error}", "run as root")]


def _title(look: Look) -> str:
    return getattr(look, "__name__", "check").strip("_").replace("_", " ")


def _root(_: Layout) -> Iterator[Finding]:
    if os.geteuid() == 0:
        yield ok("root", "yes")
    else:
        yield fail("root", f"running as user {os.geteuid()}", "run as root: namespaces, mounts and cgroups need it")


def _kernel(_: Layout) -> Iterator[Finding]:
    release = platform.release()
    version = kernel_version(release)
    if version < _KERNEL_MIN:
        yield fail("kernel", release, f"a kernel of {_KERNEL_MIN[0]}.{_KERNEL_MIN[1]} or later is needed")
    elif version < _KERNEL_SIMPLE_QUOTAS:
        yield warn("kernel", f"{release}: disk quotas are slower before 6.7", "a newer kernel has simple quotas")
    else:
        yield ok("kernel", release)


def kernel_version(release: str) -> tuple[int, int]:
    """Major and minor number of `uname -r`; (0, 0) if it has none."""
    parts = release.split("-")[0].split(".")
    try:
        return int(parts[0]), int(parts[1])
    except (IndexError, ValueError):
        return 0, 0


def _control_groups(_: Layout) -> Iterator[Finding]:
    yield ok("cgroups", f"version {cgroups.detect().version}: cpu, memory, pids, freezer")


def _programs(_: Layout) -> Iterator[Finding]:
    missing = [name for name in _PROGRAMS if shutil.which(name) is None]
    if missing:
        yield fail("programs", f"missing: {', '.join(missing)}", "`make setup` installs them")
    else:
        yield ok("programs", ", ".join(_PROGRAMS))


def _file_system(_: Layout) -> Iterator[Finding]:
    known = Path("/proc/filesystems").read_text().split()
    if "btrfs" in known:
        yield ok("btrfs", "known to the kernel")
    else:
        yield fail("btrfs", "this kernel has no btrfs", "load the module: modprobe btrfs")


def _disk_pool(layout: Layout) -> Iterator[Finding]:
    if not (layout.data / "pool.img").exists() and not btrfs.is_btrfs(_nearest(layout.data)):
        yield fail("disk pool", f"{layout.data} has none", "run `make setup` or `atoll setup`")
        return
    pool = Pool.open(layout.data)
    where = "a loop image" if pool.image else "the data directory's own btrfs"
    free_bytes = pool.free_bytes()
    detail = f"{pool.root}, {where}, {_gib(free_bytes)} free, {btrfs.quota_mode(pool.root)} quotas"
    if free_bytes < limits.POOL_RESERVE_BYTES:
        yield fail("disk pool", detail, "remove sandboxes, or enlarge the pool")
    else:
        yield ok("disk pool", detail)
    names = [template.name for template in templates.known(pool)]
    if names:
        yield ok("templates", ", ".join(names))
    else:
        yield fail("templates", "none", "run `make setup` or `atoll setup`")


def _nearest(path: Path) -> Path:
    while not path.exists():
        path = path.parent
    return path


def _runtime(layout: Layout) -> Iterator[Finding]:
    path = layout.runsc_path()
    yield ok("runsc", f"{gvisor.version_checked(path)} at {path}")
    yield ok("guest interpreter", str(layout.runtime_dir()))


def _memory(layout: Layout) -> Iterator[Finding]:
    memory = admission.host_memory()
    detail = f"{_gib(memory.available)} of {_gib(memory.total)} available"
    if memory.available < limits.MEMORY_RESERVE_BYTES + limits.ADMISSION_FREE_BYTES:
        yield fail("memory", detail, "a sandbox cannot be started with so little")
    else:
        yield ok("memory", detail)
    areas = swap.active_areas()
    if areas:
        yield ok("swap", swap.described(layout.data, areas))
    else:
        hint = "`atoll setup --zram 2GiB` or `atoll setup --swap 4GiB` makes some"
        yield warn("swap", "none: standby freezes a sandbox and frees none of its memory", hint)


def _memory_merging(_: Layout) -> Iterator[Finding]:
    yield memory_merging(_KSM)


def memory_merging(ksm: Path) -> Finding:
    """Equal pages of two sandboxes are never one page of the host: how long a write takes would tell what others hold.

    `run` is 1 while the kernel merges; what it merged before stays so, until 2 is written.
    """
    try:
        runs, shared = (int((ksm / name).read_text()) for name in ("run", "pages_shared"))
    except FileNotFoundError:
        return ok("memory merging", "this kernel has none")
    hint = f"echo 2 > {ksm}/run, and switch off what starts it (ksm.service, ksmtuned.service)"
    if runs == 1:
        return fail("memory merging", "KSM is on: sandboxes can tell what memory others hold", hint)
    if shared:
        return fail("memory merging", f"KSM is off, but {shared} pages are still merged", hint)
    return ok("memory merging", "KSM is off")


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / limits.GIB:.1f} GiB"


_LOOKS: tuple[Look, ...] = (
    _root,
    _kernel,
    _control_groups,
    _programs,
    _file_system,
    _memory,
    _memory_merging,
    _runtime,
    _disk_pool,
)
