"""`atoll file read`, `write`, `pack`, `unpack`: what is in files and folders of a sandbox, through a pipe or a file."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

import click

from atoll.cli.options import Rights
from atoll.cli.place import Place, opened, place_argument, user_option
from atoll.cli.stream import standard_input, to_standard_output

_FORMATS = click.Choice(["tar", "tar.gz", "zip"])
_source = click.argument("source", type=click.Path(path_type=Path), required=False)
_output = click.option(
    "--output", "-o", type=click.Path(path_type=Path), help="A file of this machine instead of the screen."
)


@click.command()
@place_argument
@_output
@user_option
def read(place: Place, output: Path | None, user: str | None) -> None:
    """Print a file, or copy it to this machine."""
    with opened(place) as found:
        if output is not None:
            found.files.download(place.path, output, user=user)
        else:
            to_standard_output(found.files.stream(place.path, user=user))


@click.command()
@place_argument
@_source
@click.option("--mode", type=Rights(), help="Its rights, such as 755.")
@click.option("--append", "-a", is_flag=True, help="At the end of what is there.")
@user_option
def write(place: Place, source: Path | None, mode: int | None, append: bool, user: str | None) -> None:
    """Write a file from a file of this machine, or from standard input.

    Folders on the way are made. A file that was there is replaced when the new one is complete.

    \b
        echo hello | atoll file write ID:notes.txt --append
    """
    with opened(place) as found, ExitStack() as files:
        data = standard_input() if source is None else files.enter_context(source.open("rb"))
        found.files.write(place.path, data, mode=mode, append=append, user=user)


@click.command()
@place_argument
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--format", "format_", type=_FORMATS, default="tar", show_default=True)
@_output
@user_option
def pack(place: Place, names: tuple[str, ...], format_: str, output: Path | None, user: str | None) -> None:
    """Make an archive of a folder, or of what is named below it.

    \b
        atoll file pack ID:project --format tar.gz -o project.tar.gz
    """
    with opened(place) as found:
        pieces = found.files.pack(place.path, format=format_, names=names, user=user)
        if output is not None:
            _to_file(pieces, output)
        else:
            to_standard_output(pieces)


def _to_file(pieces: Iterable[bytes], path: Path) -> None:
    """It appears when it is complete."""
    from atoll.client._local import LocalTarget

    with LocalTarget(path, None) as target:
        for data in pieces:
            target.write(data)


@click.command()
@place_argument
@_source
@click.option("--format", "format_", type=_FORMATS, default="tar", show_default=True)
@user_option
def unpack(place: Place, source: Path | None, format_: str, user: str | None) -> None:
    """Unpack an archive, a file of this machine or standard input, into a folder."""
    with opened(place) as found, ExitStack() as files:
        data = standard_input() if source is None else files.enter_context(source.open("rb"))
        done = found.files.unpack(data, place.path, format=format_, user=user)
    click.echo(f"{done.entries} entries, {done.bytes} bytes", err=True)


COMMANDS = (read, write, pack, unpack)
