"""What a host must have before set-up begins; all that is missing is said at once, with what to do."""

from __future__ import annotations

import os
import platform
import shutil
from pathlib import Path

from atoll.model.errors import Unavailable
from atoll.node import spawn
from atoll.node.install.layout import loader_name

KERNEL_OLDEST = (5, 10)  # pidfds, cgroup freezer and memory files as we use them

# The programs that set-up, the node and its tests start, and the Debian package of each.
PROGRAMS = {
    "mmdebstrap": "mmdebstrap",
    "mkfs.btrfs": "btrfs-progs",
    "zstd": "zstd",
    "tar": "tar",
    "mount": "mount",
    "losetup": "mount",
    "unshare": "util-linux",
    "setpriv": "util-linux",
    "ip": "iproute2",
    "nft": "nftables",
}


def check() -> None:
    """Raise Unavailable with everything that is missing; changes nothing but loading kernel modules."""
    root_check()
    loader_name(platform.machine())
    problems = [*kernel_problems(platform.release()), *_feature_problems(), *_program_problems()]
    if problems:
        raise Unavailable("this host lacks something: " + "; ".join(problems), code="unsupported_host")


def root_check() -> None:
    if os.geteuid() != 0:
        raise Unavailable(
            "set-up needs root: it mounts a disk pool and builds root filesystems",
            code="not_root",
            hint="run it again with sudo; nothing has been changed",
        )


def kernel_problems(release: str) -> list[str]:
    numbers = tuple(int(part) for part in release.split("-")[0].split("+")[0].split(".")[:2] if part.isdigit())
    if numbers >= KERNEL_OLDEST:
        return []
    return [f"Linux {'.'.join(map(str, KERNEL_OLDEST))} or newer (this is {release})"]


def _feature_problems() -> list[str]:
    problems = []
    if not _has_filesystem("btrfs"):
        problems.append("btrfs in the kernel (modprobe btrfs fails)")
    if not Path("/dev/loop-control").exists() and spawn.run(["modprobe", "loop"], check=False).exit_code != 0:
        problems.append("loop devices (modprobe loop fails)")
    problems += [
        f"{name} namespaces" for name in ("mnt", "net", "pid", "user") if not Path("/proc/self/ns", name).exists()
    ]
    return problems


def _has_filesystem(name: str) -> bool:
    def listed() -> bool:
        return name in Path("/proc/filesystems").read_text().split()

    return listed() or (spawn.run(["modprobe", name], check=False).exit_code == 0 and listed())


def _program_problems() -> list[str]:
    missing = sorted({package for program, package in PROGRAMS.items() if shutil.which(program) is None})
    return [f"packages, which `apt-get install {' '.join(missing)}` brings"] if missing else []
