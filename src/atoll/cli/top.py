"""`atoll sandbox top`: what a sandbox and its processes use, now and again."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Sequence

import click
import msgspec

from atoll.cli.find import find
from atoll.cli.identity import identity_argument
from atoll.cli.output import amount, json_option, print_json, print_table, printable, table
from atoll.client import Sandbox
from atoll.wire.public import MetricsHistory, MetricsSample, MetricsView, ProcessUsage

_CLEAR = "\x1b[H\x1b[J"


@click.command()
@identity_argument
@click.option("--every", "every_s", type=click.FloatRange(0.2, 3600), default=2.0, show_default=True, help="Seconds.")
@click.option("--once", is_flag=True, help="Look once, and end.")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="Processes to show.")
@click.option("--history", is_flag=True, help="Instead: what the machine saw it use in the last hour.")
@json_option
def top(identity: str, every_s: float, once: bool, limit: int, history: bool, as_json: bool) -> None:
    """Show what a sandbox uses, live: CPU, memory, disk, network, and its hungriest processes. Ctrl-C ends it."""
    found = find(identity)
    try:
        if history:
            _show_history(found.metrics.history(), as_json)
            return
        if as_json:
            now, usages = found.metrics.now(), found.metrics.processes()
            print_json({"now": msgspec.to_builtins(now), "processes": msgspec.to_builtins(usages)})
            return
        _watch(found, every_s, limit, once=once or not sys.stdout.isatty())
    finally:
        found.close()


def _show_history(past: MetricsHistory, as_json: bool) -> None:
    if as_json:
        print_json(msgspec.to_builtins(past))
    else:
        print_table(("AT", "CPU", "MEMORY", "DISK", "PROCESSES", "IN", "OUT"), history_rows(past.items))


def history_rows(samples: Sequence[MetricsSample]) -> list[tuple[str, ...]]:
    """One line for each moment: processor and network since the one before."""
    rows = []
    for before, now in itertools.pairwise(samples):
        elapsed_s = max(0.001, (now.at - before.at).total_seconds())
        rates = (
            max(0, int((now.network_received_bytes - before.network_received_bytes) / elapsed_s)),
            max(0, int((now.network_sent_bytes - before.network_sent_bytes) / elapsed_s)),
        )
        busy = max(0.0, now.cpu_s - before.cpu_s) / elapsed_s
        processes = "-" if now.processes is None else str(now.processes)
        sizes = (amount(now.memory_bytes), amount(now.disk_bytes), processes)
        rows.append((f"{now.at:%H:%M:%S}", f"{busy * 100:.0f}%", *sizes, *(f"{amount(rate)}/s" for rate in rates)))
    return rows


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
