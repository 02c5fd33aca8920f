"""A volume: a disk that outlives sandboxes and can be mounted into several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePosixPath

from atoll.model import limits
from atoll.model.errors import InvalidArgument

# Places that belong to the system or to the guest: a volume on top of one would break the sandbox from the inside.
_RESERVED = ("/proc", "/sys", "/dev", "/.atoll", "/etc", "/bin", "/sbin", "/lib", "/lib64", "/usr", "/run")


@dataclass(frozen=True, slots=True)
class Volume:
    """What is known about one volume."""

    id: str
    name: str
    quota_bytes: int
    created_at: datetime
    used_bytes: int = 0


@dataclass(frozen=True, slots=True)
class VolumeSnapshot:
    """What a volume held at one moment. It belongs to its volume, and goes with it."""

    id: str
    volume_id: str
    name: str | None
    created_at: datetime
    used_bytes: int
    """What the volume had written by then."""


@dataclass(frozen=True, slots=True)
class VolumeMount:
    """A volume at a place in a sandbox. `volume` is an id once control has looked it up, a name before."""

    volume: str
    path: str
    read_only: bool = False


def check_mounts(mounts: Sequence[VolumeMount]) -> None:
    """Refuse what cannot be mounted: too many, twice the same, or where the system lives."""
    writable = sum(not mount.read_only for mount in mounts)
    if max(writable, len(mounts) - writable) > limits.VOLUME_SLOTS:
        raise InvalidArgument(
            f"more than {limits.VOLUME_SLOTS} writable or {limits.VOLUME_SLOTS} read-only volumes",
            code="invalid_volumes",
        )
    if len({mount.volume for mount in mounts}) < len(mounts) or len({mount.path for mount in mounts}) < len(mounts):
        raise InvalidArgument("a volume or a path is given twice", code="invalid_volumes")
    for mount in mounts:
        check_path(mount.path)


def check_path(path: str) -> None:
    """A place for a volume: absolute, without tricks, and not the system's own."""
    plain = str(PurePosixPath(path))
    inside = any(plain == one or plain.startswith(one + "/") for one in _RESERVED)
    if (
        not path.startswith("/")
        or path.startswith("//")
        or plain != path
        or plain == "/"
        or ".." in plain.split("/")
        or "\0" in path
        or inside
    ):
        raise InvalidArgument(
            f"{path[:80]!r} cannot be the place of a volume",
            code="invalid_volumes",
            hint="Name an absolute path that is not part of the system, such as /data or /home/user/data.",
        )
    if len(path.encode("utf-8", "surrogateescape")) > limits.PATH_BYTES_MAX:
        raise InvalidArgument("the path of a volume is too long", code="invalid_volumes")


def check_quota(quota_bytes: int) -> int:
    if not limits.VOLUME_BYTES_MIN <= quota_bytes <= limits.DISK_BYTES_MAX:
        raise InvalidArgument(
            f"size_bytes is {quota_bytes}, which is not between {limits.VOLUME_BYTES_MIN} and {limits.DISK_BYTES_MAX}",
            code="invalid_volume_size",
        )
    return quota_bytes
