"""What the sandbox uses now: CPU, memory, disk, processes, network, in all and per process."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from atoll.guest import memory, tree
from atoll.guest.channel import Channel
from atoll.guest.params import Params, text
from atoll.model import limits

if TYPE_CHECKING:
    from atoll.guest.agent import Agent


def parse_network(table: str) -> tuple[int, int]:
    """Bytes received and sent on all interfaces but loopback, from /proc/net/dev."""
    received = sent = 0
    for line in table.splitlines():
        name, colon, rest = line.partition(":")
        fields = rest.split()
        if colon and name.strip() != "lo" and len(fields) >= 9 and fields[0].isdecimal() and fields[8].isdecimal():
            received += int(fields[0])
            sent += int(fields[8])
    return received, sent


def parse_cpu(table: str) -> float:
    """Busy seconds of all CPUs since boot, from the first line of /proc/stat."""
    fields = table.partition("\n")[0].split()
    if len(fields) < 5 or fields[0] != "cpu":
        return 0.0
    numbers = [int(field) for field in fields[1:9]]
    idle = numbers[3] + (numbers[4] if len(numbers) > 4 else 0)
    return (sum(numbers) - idle) / tree.TICKS_PER_S


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read(256 * limits.KIB)
    except OSError:
        return ""


def report(agent: Agent, params: Params, channel: Channel) -> None:
    sizes = memory.parse_meminfo(_read("/proc/meminfo"))
    entries = tree.snapshot()
    disk = os.statvfs(text(params, "disk", "/"))
    received, sent = parse_network(_read("/proc/net/dev"))
    channel.send_ok(
        {
            "at": time.time(),
            "cpu_count": os.cpu_count() or 1,
            "cpu_s": parse_cpu(_read("/proc/stat")),
            "processes_cpu_s": round(sum(entry.cpu_s for entry in entries), 3),
            "load": list(os.getloadavg()),
            "memory_total_bytes": sizes.get("MemTotal", 0),
            "memory_available_bytes": sizes.get("MemAvailable", 0),
            "disk_total_bytes": disk.f_blocks * disk.f_frsize,
            "disk_available_bytes": disk.f_bavail * disk.f_frsize,
            "files_total": disk.f_files,
            "files_available": disk.f_favail,
            "processes": len(entries),
            "threads": sum(entry.threads for entry in entries),
            "network_received_bytes": received,
            "network_sent_bytes": sent,
            "oom_kills": agent.memory.kills,
            "oom_ended": [kill._asdict() for kill in list(agent.memory.last_kills)],
        }
    )


def report_processes(agent: Agent, _params: Params, channel: Channel) -> None:
    """Every process of the sandbox; those of the guest itself are marked."""
    own = agent.workers.own_pids()
    entries = sorted(tree.snapshot(), key=lambda entry: entry.pid)
    batch: list[Params] = []
    for entry in entries:
        batch.append(
            {**entry._asdict(), "command": _command(entry.pid), "uid": _uid(entry.pid), "own": entry.pid in own}
        )
        if len(batch) >= 256:
            channel.send_event("entries", {"entries": batch})
            batch = []
    if batch:
        channel.send_event("entries", {"entries": batch})
    channel.send_end({"count": len(entries)})


def _command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="surrogateescape") as file:
            return file.read(256).replace("\0", " ").strip()
    except OSError:
        return ""


def _uid(pid: int) -> int | None:
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None
