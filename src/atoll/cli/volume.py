"""`atoll volume`: make, list and delete volumes."""

from __future__ import annotations

from datetime import UTC, datetime

import click
import msgspec

from atoll.cli.output import amount, json_option, print_json, print_table, since
from atoll.client import Volume


@click.group()
def volume() -> None:
    """Make, list and delete disks that outlive sandboxes.

    Mount one with `atoll sandbox create --volume /data=NAME`, or NAME:ro to read only.
    """


@volume.command()
@click.argument("name")
@click.option("--size", metavar="SIZE", help="The most that it may hold, such as 10GiB.")
@click.option("--from", "source", metavar="VOLUME", help="Clone this one.")
@json_option
def create(name: str, size: str | None, source: str | None, as_json: bool) -> None:
    """Make a volume and print its id."""
    view = Volume.create(name, size=size, source=source)
    if as_json:
        print_json(msgspec.to_builtins(view))
    else:
        click.echo(view.id)


@volume.command()
@json_option
def ls(as_json: bool) -> None:
    """List volumes, by name."""
    views = Volume.list()
    if as_json:
        print_json([msgspec.to_builtins(view) for view in views])
        return
    now = datetime.now(UTC)
    rows = [
        (view.name, view.id, amount(view.used_bytes), amount(view.size_bytes), since(view.created_at, now))
        for view in views
    ]
    print_table(("NAME", "ID", "USED", "SIZE", "AGE"), rows)


@volume.command()
@click.argument("references", metavar="VOLUME...", nargs=-1, required=True)
def rm(references: tuple[str, ...]) -> None:
    """Delete volumes that no sandbox has, with all that is in them."""
    for reference in references:
        Volume.delete(reference)
        click.echo(reference)
