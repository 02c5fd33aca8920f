"""`atoll volume`: make, list and delete volumes, with what is in them."""

from __future__ import annotations

from datetime import UTC, datetime

import click
import msgspec

from atoll.cli import volumefiles, volumesnapshots
from atoll.cli.output import amount, json_option, print_json, print_table, since
from atoll.client import Volume


@click.group()
def volume() -> None:
    """Make, list and delete disks that outlive sandboxes.

    Mount one with `atoll sandbox create --volume /data=NAME`, or NAME:ro to read only. A file in one is VOLUME:PATH.
    """


for more in (*volumefiles.COMMANDS, *volumesnapshots.COMMANDS):
    volume.add_command(more)


@volume.command()
@click.argument("name")
@click.option("--size", metavar="SIZE", help="The most that it may hold, such as 10GiB.")
@click.option("--from", "source", metavar="VOLUME", help="Clone this one.")
@click.option("--snapshot", metavar="SNAPSHOT", help="As it was then; a snapshot of the one that is cloned.")
@json_option
def create(name: str, size: str | None, source: str | None, snapshot: str | None, as_json: bool) -> None:
    """Make a volume and print its id."""
    view = Volume.create(name, size=size, source=source, snapshot=snapshot)
    if as_json:
        print_json(msgspec.to_builtins(view))
    else:
        click.echo(view.id)


@volume.command()
@click.argument("place", metavar="[VOLUME:PATH]", required=False)
@click.option("--depth", type=click.IntRange(1), default=1, show_default=True, help="Of folders in folders.")
@json_option
def ls(place: str | None, depth: int, as_json: bool) -> None:
    """List volumes, by name; or the files in a folder of one."""
    if place is not None:
        named = volumefiles.parse_place(place) or volumefiles.FilePlace(place, "/")
        volumefiles.show_files(named, depth, as_json)
        return
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
@click.argument("references", metavar="VOLUME[:PATH]...", nargs=-1, required=True)
@click.option("--recursive", "-r", is_flag=True, help="Folders with all that is in them.")
def rm(references: tuple[str, ...], recursive: bool) -> None:
    """Delete volumes that no sandbox has, with all that is in them; or files in volumes."""
    for reference in references:
        place = volumefiles.parse_place(reference)
        if place is None:
            Volume.delete(reference)
        else:
            Volume.files(place.volume).remove(place.path, recursive=recursive)
        click.echo(reference)
