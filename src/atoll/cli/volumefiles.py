"""`atoll volume read`, `write`, `stat`, `mkdir`, `mv`: the files of a volume, without a sandbox."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click
import msgspec

from atoll.cli.options import Rights
from atoll.cli.output import amount, print_json, print_table, printable
from atoll.cli.stream import standard_input, to_standard_output
from atoll.client import FileView, Volume

_KINDS = {"directory": "d", "symlink": "l", "file": "-"}


@dataclass(frozen=True)
class FilePlace:
    """A file of a volume."""

    volume: str
    path: str


class FilePlaceType(click.ParamType[FilePlace]):
    """VOLUME:PATH; the path begins at the volume's root."""

    name = "VOLUME:PATH"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> FilePlace:
        place = parse_place(value)
        if place is None:
            self.fail(f"{value!r} is not VOLUME:PATH, such as data:/notes.txt", param, ctx)
        return place


def parse_place(text: str) -> FilePlace | None:
    """None for a volume alone: its name has no colon."""
    volume, colon, path = text.partition(":")
    return FilePlace(volume, path or "/") if colon and volume else None


def show_files(place: FilePlace, depth: int, as_json: bool) -> None:
    views = Volume.files(place.volume).list(place.path, depth=depth)
    if views.truncated:
        click.echo("there are more", err=True)
    if as_json:
        print_json([msgspec.to_builtins(view) for view in views])
        return
    print_table(("", "MODE", "OWNER", "SIZE", "PATH"), [_row(view) for view in views])


def _row(view: FileView) -> tuple[str, ...]:
    target = f" -> {printable(view.link_target)}" if view.link_target else ""
    kind = _KINDS.get(view.type, "?")
    return kind, f"{view.mode:o}", f"{view.owner}:{view.group}", amount(view.size), printable(view.path) + target


@click.command()
@click.argument("place", type=FilePlaceType())
@click.option("--output", "-o", type=click.Path(path_type=Path), help="A file of this machine instead of the screen.")
def read(place: FilePlace, output: Path | None) -> None:
    """Print a file of a volume, or copy it to this machine."""
    files = Volume.files(place.volume)
    if output is not None:
        files.download(place.path, output)
        return
    to_standard_output(files.stream(place.path))


@click.command()
@click.argument("place", type=FilePlaceType())
@click.argument("source", type=click.Path(path_type=Path), required=False)
@click.option("--mode", type=Rights(), help="Its rights, such as 755.")
def write(place: FilePlace, source: Path | None, mode: int | None) -> None:
    """Write a file of a volume from a file of this machine, or from standard input.

    Folders on the way are made. A file that was there is replaced when the new one is complete.
    """
    files = Volume.files(place.volume)
    if source is not None:
        files.upload(source, place.path, mode=mode)
    else:
        files.write(place.path, standard_input(), mode=mode)


@click.command()
@click.argument("place", type=FilePlaceType())
@click.option("--follow", "-L", is_flag=True, help="What a link leads to.")
def stat(place: FilePlace, follow: bool) -> None:
    """Show all about one file or folder of a volume, as JSON."""
    print_json(msgspec.to_builtins(Volume.files(place.volume).stat(place.path, follow=follow)))


@click.command()
@click.argument("places", type=FilePlaceType(), nargs=-1, required=True)
def mkdir(places: tuple[FilePlace, ...]) -> None:
    """Make folders of volumes, and those above them."""
    for place in places:
        Volume.files(place.volume).mkdir(place.path)


@click.command()
@click.argument("source", type=FilePlaceType())
@click.argument("target", metavar="PATH")
@click.option("--no-overwrite", is_flag=True, help="Refuse if there is something already.")
def mv(source: FilePlace, target: str, no_overwrite: bool) -> None:
    """Move or rename a file or folder within its volume."""
    place = parse_place(target)
    if place is not None and place.volume != source.volume:
        raise click.UsageError("a file moves within its volume")
    path = place.path if place is not None else target
    Volume.files(source.volume).move(source.path, path, overwrite=not no_overwrite)


COMMANDS = (read, write, stat, mkdir, mv)
