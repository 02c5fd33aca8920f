"""`atoll doctor`: what this machine can do, check by check; with --gc, remove what no server owns any more."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from atoll.cli.output import json_option, paint, print_json, print_table, printable
from atoll.model.errors import Forbidden

if TYPE_CHECKING:
    from atoll.node.findings import Report
    from atoll.node.install.layout import Layout
    from atoll.node.inventory import Item

_MARKS = {"ok": ("ok", "green"), "warn": ("warn", "yellow"), "fail": ("FAIL", "red")}


@click.command()
@click.option(
    "--data", type=click.Path(path_type=Path), help="The server's data directory [ATOLL_DATA, /var/lib/atoll]."
)
@click.option("--cache", type=click.Path(path_type=Path), help="The machine's cache [ATOLL_CACHE, /var/cache/atoll].")
@click.option("--outside", is_flag=True, help="Leave out the probes in a real sandbox.")
@click.option("--gc", "collect", is_flag=True, help="Instead: remove what a server that is gone left on this host.")
@json_option
def doctor(data: Path | None, cache: Path | None, outside: bool, collect: bool, as_json: bool) -> int:
    """Show what this machine can do, and prove in a real sandbox that the known holes are closed. Needs root.

    Ends with 1 if a check failed.
    """
    import anyio

    from atoll.node.install.layout import Layout

    if os.geteuid() != 0:
        raise Forbidden("atoll doctor needs root", code="not_root", hint="Run it with sudo.")
    layout = Layout.from_environment()
    layout = dataclasses.replace(
        layout, data=(data or layout.data).absolute(), cache=(cache or layout.cache).absolute()
    )
    if collect:
        _show_removed(anyio.run(_collected, layout), as_json)
        return 0
    from atoll.node.doctor import examine

    report = anyio.run(lambda: examine(layout, inside=not outside))
    if as_json:
        print_json({"healthy": report.healthy, "findings": [dataclasses.asdict(item) for item in report.findings]})
    else:
        _show(report)
    return 0 if report.healthy else 1


def lines(report: Report) -> list[str]:
    """One line for each check, and below one that is not fine what to do about it."""
    width = max((len(finding.name) for finding in report.findings), default=0)
    shown = []
    for finding in report.findings:
        word, colour = _MARKS[finding.status]
        shown.append(
            f"{paint(word.ljust(4), colour)}  {printable(finding.name).ljust(width)}  {printable(finding.detail)}"
        )
        if finding.hint and finding.status != "ok":
            shown.append(f"      {' ' * width}  -> {printable(finding.hint)}")
    return shown


def _show(report: Report) -> None:
    for line in lines(report):
        click.echo(line)


async def _collected(layout: Layout) -> Sequence[Item]:
    """What was on the host for boxes that are in no journal, now removed. Boxes on record stay for the next start.

    Only while no server runs: a running one owns things that it has not yet written down, and cleans up by itself.
    """
    from atoll.app.serve import data_lock
    from atoll.node import inventory
    from atoll.node.hostopen import host_open

    with data_lock(layout.data):
        host = await host_open(layout)
        entries = host.journal.read()
        boxes, slots = {entry.box_id for entry in entries}, {entry.slot for entry in entries}
        return [*await inventory.sweep(host, boxes, slots), *await inventory.sweep_nameless(host)]


def _show_removed(items: Sequence[Item], as_json: bool) -> None:
    if as_json:
        removed: list[dict[str, Any]] = [dataclasses.asdict(item) for item in items]
        print_json({"removed": removed})
    elif not items:
        click.echo("nothing was left behind")
    else:
        print_table(("REMOVED", "NAME"), [(item.kind, item.name) for item in items])
