"""Swap for sandboxes that stand still: a file in the data directory, or compressed memory (zram); made and taken away.

What was made is on record in `<data>/swap.json`, before it is made, so that it can be taken away whatever happens, and
made active again after a reboot. Other swap of the machine is not touched, and a second run with the same wish does
nothing.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from atoll.model import limits
from atoll.model.errors import AtollError, InvalidArgument, Unavailable
from atoll.node import spawn

FILE, ZRAM = "file", "zram"
_RECORD = "swap.json"
_SWAP_FILE = "swapfile"
_CONTROL = Path("/sys/class/zram-control")
_PRIORITY = {FILE: "10", ZRAM: "100"}  # memory before disk, and both before what has no priority of its own
_CAN_HOLD = frozenset({"ext2", "ext3", "ext4", "xfs", "f2fs"})
_WHY_NOT = {
    "btrfs": "a swap file on btrfs must not be copied on write, and its subvolume can have no snapshots",
    "tmpfs": "a swap file in memory frees none",
    "ramfs": "a swap file in memory frees none",
    "overlay": "the kernel takes no swap file on an overlay",
    "zfs": "the kernel takes no swap file on zfs",
}

Say = Callable[[str], None]


class Wish(msgspec.Struct, frozen=True):
    """What an operator wants, and for zram which device it became."""

    kind: str
    size_bytes: int
    device: str = ""
    boot_id: str = ""


@dataclass(frozen=True, slots=True)
class Area:
    """An area that the kernel swaps to."""

    path: str
    size_bytes: int


def ensure(data: Path, kind: str, size_bytes: int, say: Say) -> None:
    """Make swap of this kind and size, in place of what this server had."""
    if not limits.SWAP_BYTES_MIN <= size_bytes <= limits.SWAP_BYTES_MAX:
        raise InvalidArgument(
            f"swap of {size_bytes} bytes is not between {limits.SWAP_BYTES_MIN} and {limits.SWAP_BYTES_MAX}",
            code="invalid_size",
        )
    known = recorded(data)
    if known is not None and (known.kind, known.size_bytes) == (kind, size_bytes) and _is_active(data, known):
        say(f"swap: {_words(known)} is there")
        return
    remove(data, say)
    check_possible(data, kind, size_bytes)
    _make(data, Wish(kind, size_bytes))
    say(f"swap: {_words(Wish(kind, size_bytes))} is ready")


def restore(data: Path, say: Say) -> None:
    """Make active again what is on record, for example after a reboot; nothing is lost by not having it."""
    known = recorded(data)
    if known is None or _is_active(data, known):
        return
    try:
        _make(data, Wish(known.kind, known.size_bytes))
        say(f"swap: {_words(known)} is active again")
    except AtollError as error:
        say(f"swap: {_words(known)} could not be made active: {error.message}")


def remove(data: Path, say: Say) -> None:
    """Take away what this server made; what was in it goes back to memory. Idempotent."""
    known = recorded(data)
    if known is None:
        return
    path = _path(data, known)
    if _is_active(data, known):
        spawn.run(["swapoff", path], timeout_s=limits.SWAP_OFF_S_MAX)
    if known.kind == FILE:
        path.unlink(missing_ok=True)
    elif known.device and known.boot_id == _boot_id() and path.exists():
        (_CONTROL / "hot_remove").write_text(known.device.removeprefix("/dev/zram"))
    (data / _RECORD).unlink(missing_ok=True)
    say(f"swap: {_words(known)} was taken away")


def recorded(data: Path) -> Wish | None:
    try:
        return msgspec.json.decode((data / _RECORD).read_bytes(), type=Wish)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def described(data: Path, active: list[Area]) -> str:
    """All swap of the machine, for a person; pure but for the record."""
    known = recorded(data)
    ours = str(_path(data, known)) if known is not None else ""
    names = [f"{area.path}{' (made by set-up)' if area.path == ours else ''}" for area in active]
    return f"{sum(area.size_bytes for area in active) / limits.GIB:.1f} GiB: {', '.join(names)}"


def active_areas(table: str | None = None) -> list[Area]:
    """What the kernel swaps to now."""
    lines = (Path("/proc/swaps").read_text() if table is None else table).splitlines()[1:]
    fields = [line.split() for line in lines]
    return [Area(_unescaped(words[0]), int(words[2]) * limits.KIB) for words in fields if len(words) >= 3]


def check_possible(data: Path, kind: str, size_bytes: int) -> None:
    """Refuse what cannot work on this host, with the reason; changes nothing but loading a kernel module."""
    if kind == ZRAM:
        _check_zram(size_bytes)
    else:
        _check_file(data, size_bytes)


def file_refusal(file_system: str) -> str:
    """Why a swap file cannot lie on a filesystem of this type; empty if it can. Pure."""
    if file_system in _CAN_HOLD:
        return ""
    return _WHY_NOT.get(file_system, f"it is not known whether a swap file works on {file_system or 'this filesystem'}")


def _check_file(data: Path, size_bytes: int) -> None:
    refusal = file_refusal(_file_system(data))
    if refusal:
        raise Unavailable(
            f"no swap file in {data}: {refusal}", code="swap_impossible", hint="Use --zram, or a partition of your own."
        )
    free_bytes = shutil.disk_usage(data).free
    if size_bytes + limits.SWAP_DISK_RESERVE_BYTES > free_bytes:
        raise Unavailable(
            f"no swap file of {size_bytes} bytes in {data}: only {free_bytes} are free",
            code="swap_impossible",
            hint="Make it smaller, or use --zram.",
        )


def _check_zram(size_bytes: int) -> None:
    if not _CONTROL.exists() and spawn.run(["modprobe", "zram", "num_devices=0"], check=False).exit_code != 0:
        raise Unavailable("this kernel has no zram", code="swap_impossible", hint="Use --swap, a file.")
    total_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if size_bytes > total_bytes * limits.ZRAM_MEMORY_TIMES_MAX:
        raise Unavailable(
            f"zram of {size_bytes} bytes is more than {limits.ZRAM_MEMORY_TIMES_MAX} times the machine's memory",
            code="swap_impossible",
            hint="Memory shrinks to a half or a third when it is packed; make it smaller.",
        )


def _make(data: Path, wish: Wish) -> None:
    """On record first; what fails half way is taken away again."""
    data.mkdir(mode=0o711, parents=True, exist_ok=True)
    _record(data, wish)
    try:
        path = _file_make(data, wish) if wish.kind == FILE else _zram_make(data, wish)
        _run("mkswap", "--label", "atoll", path)
        _run("swapon", "--priority", _PRIORITY[wish.kind], path)
    except BaseException:
        remove(data, lambda _: None)
        raise


def _run(*argv: str | Path) -> None:
    finished = spawn.run(argv, check=False)
    if finished.exit_code != 0:
        words = finished.stderr.strip() or f"exit code {finished.exit_code}"
        raise Unavailable(f"this host does not take the swap: {words}", code="swap_impossible")


def _file_make(data: Path, wish: Wish) -> Path:
    path = _path(data, wish)
    path.unlink(missing_ok=True)
    # Readable by nobody else from its first byte on: it will hold the memory of programs.
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(fd, 0, wish.size_bytes)
    except OSError as error:
        raise Unavailable(f"no swap file in {data}: {error.strerror}", code="swap_impossible") from error
    finally:
        os.close(fd)
    return path


def _zram_make(data: Path, wish: Wish) -> Path:
    try:
        number = (_CONTROL / "hot_add").read_text().strip()
        device = Path(f"/dev/zram{number}")
        _record(data, Wish(wish.kind, wish.size_bytes, str(device), _boot_id()))
        Path(f"/sys/block/zram{number}/disksize").write_text(str(wish.size_bytes))
    except OSError as error:
        raise Unavailable(f"no zram device: {error.strerror}", code="swap_impossible", hint="Use --swap.") from error
    return device


def _record(data: Path, wish: Wish) -> None:
    temporary = data / f".{_RECORD}"
    temporary.write_bytes(msgspec.json.encode(wish))
    temporary.replace(data / _RECORD)


def _is_active(data: Path, wish: Wish) -> bool:
    if wish.kind == ZRAM and wish.boot_id != _boot_id():
        return False  # another device may have its name since
    return str(_path(data, wish)) in {area.path for area in active_areas()}


def _path(data: Path, wish: Wish) -> Path:
    return data / _SWAP_FILE if wish.kind == FILE else Path(wish.device or "/dev/null/none")


def _words(wish: Wish) -> str:
    what = "compressed memory" if wish.kind == ZRAM else "a file"
    return f"{wish.size_bytes / limits.GIB:.1f} GiB in {what}"


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _file_system(path: Path) -> str:
    """The type of the filesystem that a path, or the first folder above it that exists, lies on."""
    while not path.exists():
        path = path.parent
    return spawn.run(["findmnt", "--noheadings", "--output", "FSTYPE", "--target", path], check=False).text


def _unescaped(name: str) -> str:
    return name.replace("\\040", " ").removesuffix("\\040(deleted)")
