"""`atoll sandbox top`: what a sandbox and its processes use, now and again."""

from __future__ import annotations

import sys
import time

import click
import msgspec

from atoll.cli.find import find
from atoll.cli.output import amount, json_option, print_json, printable, table
from atoll.client import Sandbox
from atoll.wire.public import MetricsView, ProcessUsage

_CLEAR = "\x1b[H\x1b[J"


@click.command()
@click.argument("identity", metavar="ID")
@click.option("--every", "every_s", type=click.FloatRange(0.2, 3600), default=2.0, show_default=True, help="Seconds.")
@click.option("--once", is_flag=True, help="Look once, and end.")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="Processes to show.")
@json_option
def top(identity: str, every_s: float, once: bool, limit: int, as_json: bool) -> None:
    """Show what a sandbox uses, live: CPU, memory, disk, network, and its hungriest processes. Ctrl-C ends it."""
    found = find(identity)
    try:
        if as_json:
            now, usages = found.metrics.now(), found.metrics.processes()
            print_json({"now": msgspec.to_builtins(now), "processes": msgspec.to_builtins(usages)})
            return
        _watch(found, every_s, limit, once=once or not sys.stdout.isatty())
    finally:
        found.close()


def _watch(sandbox: Sandbox, every_s: float, limit: int, *, once: bool) -> None:
    before, used = sandbox.metrics.now(), _by_pid(sandbox.metrics.processes())
    while True:
        time.sleep(min(every_s, 0.5) if once else every_s)
        now, usages = sandbox.metrics.now(), sandbox.metrics.processes()
        lines = screen(sandbox.id, before, now, used, usages, limit)
        sys.stdout.write(("" if once else _CLEAR) + "\n".join(lines) + "\n")
        sys.stdout.flush()
        if once:
            return
        before, used = now, _by_pid(usages)


def _by_pid(usages: list[ProcessUsage]) -> dict[int, float]:
    return {usage.pid: usage.cpu_s for usage in usages}


def screen(
    name: str,
    before: MetricsView,
    now: MetricsView,
    used: dict[int, float],
    usages: list[ProcessUsage],
    limit: int,
) -> list[str]:
    """What is shown: totals, and processes by the CPU they took since the look before, then by memory."""
    elapsed_s = max(0.001, (now.at - before.at).total_seconds())
    rates = {usage.pid: max(0.0, usage.cpu_s - used.get(usage.pid, 0.0)) / elapsed_s for usage in usages}
    busy = max(0.0, now.cpu_s - before.cpu_s) / elapsed_s
    ordered = sorted(usages, key=lambda usage: (-rates[usage.pid], -usage.memory_bytes))
    taken_bytes = now.memory_total_bytes - now.memory_available_bytes
    disk_bytes = now.disk_total_bytes - now.disk_available_bytes
    received = (now.network_received_bytes - before.network_received_bytes) / elapsed_s
    sent = (now.network_sent_bytes - before.network_sent_bytes) / elapsed_s
    rows = [
        (
            str(usage.pid),
            str(usage.uid) if usage.uid is not None else "-",
            f"{rates[usage.pid] * 100:.0f}%",
            amount(usage.memory_bytes),
            usage.state,
            f"{usage.cpu_s:.1f}s",
            (usage.command or usage.name)[:100],
        )
        for usage in ordered[:limit]
    ]
    return [
        f"{printable(name)}  {now.at:%H:%M:%S} UTC  {now.processes} processes, {now.threads} threads",
        f"cpu {busy * 100:.0f}% of {now.cpu_count} cores  memory {amount(taken_bytes)} of "
        f"{amount(now.memory_total_bytes)}  disk {amount(disk_bytes)} of {amount(now.disk_total_bytes)}",
        f"network {amount(max(0, int(received)))}/s in, {amount(max(0, int(sent)))}/s out"
        + (f"  ended for memory: {now.oom_kills}" if now.oom_kills else ""),
        "",
        *table(("PID", "UID", "CPU", "MEMORY", "STATE", "TIME", "COMMAND"), rows),
    ]
