"""Whether the machine has been restarted since this server last ran on it."""

from __future__ import annotations

from pathlib import Path

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def changed(record: Path, boot_id: Path = BOOT_ID) -> bool:
    """Compare this boot of the machine with the one on record, and put this one there. The first time nothing has."""
    now = boot_id.read_text().strip()
    try:
        before = record.read_text().strip()
    except FileNotFoundError:
        before = now
    record.write_text(now + "\n")
    return before != now
