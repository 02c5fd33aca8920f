"""`atoll usage`: what has been used, and what it costs."""

from __future__ import annotations

import csv
import sys
from datetime import datetime

import click
import msgspec

from atoll.cli.options import Moment, Pairs
from atoll.cli.output import amount, duration, json_option, print_json, print_table
from atoll.client import Usage
from atoll.wire.public import UsageReport, UsageView

COLUMNS = ("group", "sandboxes", "wall_s", "cpu_s", "memory_gib_s", "disk_gib_s", "egress_bytes", "money")


@click.command()
@click.option("--by", help="day, template, sandbox, key, label:KEY, or tenant, which is for the operator.")
@click.option("--since", type=Moment(), help="From this moment's hour on, in UTC, or the last 2h.")
@click.option("--until", type=Moment(), help="Up to this moment, in UTC.")
@click.option("--template", "-t", help="Only of this template.")
@click.option("--sandbox", help="Only of this sandbox, by its whole id.")
@click.option("--metadata", "-m", multiple=True, type=Pairs(), help="Only with this label.")
@click.option("--tenant", help="Of another tenant; for the operator.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV, for spreadsheets.")
@json_option
def usage(
    by: str | None,
    since: datetime | None,
    until: datetime | None,
    template: str | None,
    sandbox: str | None,
    metadata: tuple[tuple[str, str], ...],
    tenant: str | None,
    as_csv: bool,
    as_json: bool,
) -> None:
    """Sum up what has been used: time, CPU, memory, disk, traffic, and what it costs by the server's prices."""
    report = Usage.report(
        by=by,
        since=since,
        until=until,
        template=template,
        sandbox=sandbox,
        metadata=dict(metadata),
        tenant=tenant,
    )
    if report.truncated:
        click.echo("there are more groups than are shown: narrow it down with --since, -t or -m", err=True)
    if as_json:
        print_json(msgspec.to_builtins(report))
    elif as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows([_safe(getattr(row, name)) for name in COLUMNS] for row in report.items)
    else:
        _table(report)


def _table(report: UsageReport) -> None:
    headings = ((report.by or "all").upper(), "SANDBOXES", "TIME", "CPU", "MEMORY GiB·h", "DISK GiB·h", "SENT", "COST")
    print_table(headings, [_row(row, report.currency) for row in report.items])


def _row(row: UsageView, currency: str) -> tuple[str, ...]:
    return (
        row.group or "-",
        str(row.sandboxes),
        duration(row.wall_s),
        f"{row.cpu_s:.1f}s",
        f"{row.memory_gib_s / 3600:.3f}",
        f"{row.disk_gib_s / 3600:.3f}",
        amount(row.egress_bytes),
        f"{row.money:.4f} {currency}".rstrip(),
    )


def _safe(value: object) -> object:
    """A label that a spreadsheet would take for a formula is told apart from one."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
