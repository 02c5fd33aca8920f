"""`atoll volume snapshot`, `snapshots`, `rollback`, `snapshot-rm`: what volumes held at earlier moments."""

from __future__ import annotations

from datetime import UTC, datetime

import click
import msgspec

from atoll.cli.output import amount, json_option, print_json, print_table, since
from atoll.client import Volume


@click.command()
@click.argument("reference", metavar="VOLUME")
@click.option("--name", help="A name of your choice; unique among the snapshots of the volume.")
@json_option
def snapshot(reference: str, name: str | None, as_json: bool) -> None:
    """Keep what a volume holds now, and print the snapshot's id."""
    view = Volume.snapshot(reference, name)
    if as_json:
        print_json(msgspec.to_builtins(view))
    else:
        click.echo(view.id)


@click.command()
@click.argument("reference", metavar="VOLUME")
@json_option
def snapshots(reference: str, as_json: bool) -> None:
    """List the snapshots of a volume, newest first."""
    views = Volume.snapshots(reference)
    if as_json:
        print_json([msgspec.to_builtins(view) for view in views])
        return
    now = datetime.now(UTC)
    rows = [(view.id, view.name or "-", amount(view.used_bytes), since(view.created_at, now)) for view in views]
    print_table(("ID", "NAME", "USED", "AGE"), rows)


@click.command()
@click.argument("reference", metavar="VOLUME")
@click.argument("snapshot", metavar="SNAPSHOT")
def rollback(reference: str, snapshot: str) -> None:
    """Make a volume that no sandbox has what it was; what came since is lost."""
    click.echo(Volume.rollback(reference, snapshot).id)


@click.command("snapshot-rm")
@click.argument("reference", metavar="VOLUME")
@click.argument("snapshots", metavar="SNAPSHOT...", nargs=-1, required=True)
def snapshot_rm(reference: str, snapshots: tuple[str, ...]) -> None:
    """Delete snapshots of a volume; volumes that were cloned from them stay."""
    for snapshot in snapshots:
        Volume.delete_snapshot(reference, snapshot)
        click.echo(snapshot)


COMMANDS = (snapshot, snapshots, rollback, snapshot_rm)
