"""The OCI configuration of a box: a pure function, because a restore must find the very same one as its snapshot.

runsc compares arguments, user, capabilities, limits and the list of mounts between checkpoint and restore. One function
builds both, and nothing that differs between two boxes of a template (tokens, environment, names) is in it.
"""

from __future__ import annotations

from typing import Any

from atoll.model import limits
from atoll.node.runtime.base import Bundle

# What root inside may do, all of it within the sentry: enough for package managers, sudo, servers on low ports and
# mounts; nothing that reaches a raw socket, a kernel module or the clock.
CAPABILITIES = (
    "CAP_AUDIT_WRITE",
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_DAC_READ_SEARCH",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_MKNOD",
    "CAP_NET_BIND_SERVICE",
    "CAP_SETFCAP",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
    "CAP_SYS_ADMIN",
    "CAP_SYS_CHROOT",
    "CAP_SYS_NICE",
    "CAP_SYS_PTRACE",
    "CAP_SYS_RESOURCE",
)

_SHM_BYTES = 512 * limits.MIB  # a browser needs it; it counts as the sandbox's memory


def config(bundle: Bundle) -> dict[str, Any]:
    """The content of config.json."""
    capabilities = list(CAPABILITIES)
    return {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": list(bundle.argv),
            "env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"],
            "cwd": "/",
            # sudo must work inside, and setuid stays inside the sentry.
            "noNewPrivileges": False,
            "capabilities": dict.fromkeys(("bounding", "effective", "permitted", "inheritable"), capabilities),
            "rlimits": [
                {"type": "RLIMIT_NOFILE", "soft": 65536, "hard": 1048576},
                {"type": "RLIMIT_CORE", "soft": 0, "hard": 0},
            ],
        },
        "root": {"path": str(bundle.root), "readonly": False},
        "hostname": bundle.hostname,
        "mounts": _mounts(bundle),
        "linux": {
            "namespaces": [
                {"type": "pid"},
                {"type": "ipc"},
                {"type": "uts"},
                {"type": "mount"},
                {"type": "network", "path": bundle.netns},
            ],
            "cgroupsPath": f"/{bundle.cgroup}",
        },
    }


def _mounts(bundle: Bundle) -> list[dict[str, Any]]:
    system: list[dict[str, Any]] = [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=65536k"]},
        {"destination": "/dev/pts", "type": "devpts", "source": "devpts", "options": ["nosuid", "noexec", "mode=620"]},
        {
            "destination": "/dev/shm",  # noqa: S108 - the sandbox's own
            "type": "tmpfs",
            "source": "shm",
            "options": ["nosuid", "nodev", "mode=1777", f"size={_SHM_BYTES}"],
        },
        {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["nosuid", "noexec", "nodev", "ro"]},
    ]
    binds = [
        {
            "destination": bind.target,
            "type": "bind",
            "source": str(bind.source),
            "options": ["bind", "ro", "nosuid", "nodev"] if bind.read_only else ["bind", "rw", "nosuid", "nodev"],
        }
        for bind in bundle.binds
    ]
    return system + binds
