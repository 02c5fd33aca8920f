"""`atoll file`: the files of a sandbox, looked at, searched, watched, and handed out by address."""

from __future__ import annotations

import click
import msgspec

from atoll.cli import filebytes, filechanges
from atoll.cli.options import Seconds
from atoll.cli.output import json_option, print_json, print_table, printable
from atoll.cli.place import Place, opened, place_argument, user_option
from atoll.client import FileChanged, FileOverflow, Listed
from atoll.wire.public import FileView

_LETTERS = {"directory": "d", "symlink": "l", "file": "-"}


@click.group()
def file() -> None:
    """Look at the files of a sandbox and change them; `atoll sandbox cp` copies in and out. A PLACE is ID:PATH."""


for more in (*filebytes.COMMANDS, *filechanges.COMMANDS):
    file.add_command(more)


@file.command("ls")
@place_argument
@click.option("--depth", type=click.IntRange(1), default=1, show_default=True, help="Folders below it.")
@user_option
@json_option
def list_(place: Place, depth: int, user: str | None, as_json: bool) -> None:
    """List a folder."""
    with opened(place) as found:
        _print(found.files.list(place.path, depth=depth, user=user), as_json)


@file.command("find")
@place_argument
@click.argument("pattern")
@click.option("--type", "type_", type=click.Choice(["file", "directory", "symlink"]), help="Only these.")
@click.option("--limit", type=click.IntRange(1), default=10_000, show_default=True, help="Files to show at most.")
@user_option
@json_option
def find_(place: Place, pattern: str, type_: str | None, limit: int, user: str | None, as_json: bool) -> None:
    """Find files below a folder by a pattern of their name, such as '*.py'."""
    with opened(place) as found:
        _print(found.files.find(place.path, pattern, type=type_, limit=limit, user=user), as_json)


def _print(views: Listed[FileView], as_json: bool) -> None:
    if views.truncated:
        click.echo("there are more", err=True)
    if as_json:
        print_json(msgspec.to_builtins(list(views)))
        return
    rows = [
        (
            f"{_LETTERS.get(view.type, '?')}{view.mode & 0o7777:04o}",
            f"{view.owner}:{view.group}",
            str(view.size),
            f"{view.modified_at:%Y-%m-%d %H:%M}",
            view.path + (f" -> {view.link_target}" if view.link_target else ""),
        )
        for view in views
    ]
    print_table(("MODE", "OWNER", "SIZE", "MODIFIED", "PATH"), rows)


@file.command()
@place_argument
@click.option("--follow", is_flag=True, help="What a link leads to.")
@user_option
def stat(place: Place, follow: bool, user: str | None) -> None:
    """Show all about a file, as JSON."""
    with opened(place) as found:
        print_json(msgspec.to_builtins(found.files.stat(place.path, follow=follow, user=user)))


@file.command()
@place_argument
@click.argument("pattern")
@click.option("--glob", default="*", help="Only in files of such a name.")
@click.option("--text", is_flag=True, help="PATTERN is a text, not a regular expression.")
@click.option("--ignore-case", "-i", is_flag=True)
@click.option("--limit", type=click.IntRange(1), default=1000, show_default=True, help="Matches to show at most.")
@user_option
@json_option
def search(
    place: Place,
    pattern: str,
    glob: str,
    text: bool,
    ignore_case: bool,
    limit: int,
    user: str | None,
    as_json: bool,
) -> int:
    """Find lines, in a file or in all below a folder. Ends with 1 if there is none."""
    with opened(place) as found:
        answer = found.files.search(
            place.path, pattern, glob=glob, regex=not text, ignore_case=ignore_case, limit=limit, user=user
        )
    if as_json:
        print_json(msgspec.to_builtins(answer))
    else:
        for match in answer.items:
            click.echo(f"{printable(match.path)}:{match.line}:{match.column}: {printable(match.text)}")
        if answer.truncated:
            click.echo("there are more", err=True)
    return 0 if answer.items else 1


@file.command()
@place_argument
@click.option("--upload", is_flag=True, help="To PUT the file, not to GET it.")
@click.option("--expires", "expires_s", type=Seconds(), default="5m", show_default=True)
@user_option
def url(place: Place, upload: bool, expires_s: float, user: str | None) -> None:
    """Print an address that opens this one file, for whoever has no key.

    \b
        curl -o data.csv "$(atoll file url ID:data.csv)"
        curl -T data.csv "$(atoll file url --upload ID:data.csv)"
    """
    with opened(place) as found:
        made = found.files.upload_url if upload else found.files.download_url
        click.echo(made(place.path, expires_s=expires_s, user=user))


@file.command()
@place_argument
@click.option("--recursive", "-r", is_flag=True, help="Folders below it, too.")
@user_option
def watch(place: Place, recursive: bool, user: str | None) -> None:
    """Print each change of a folder, until Ctrl-C; a line `overflow` says that some were lost."""
    with (
        opened(place) as found,
        found.files.watch(place.path, recursive=recursive, user=user) as changes,
    ):
        click.echo("watching", err=True)
        for change in changes:
            if isinstance(change, FileChanged):
                click.echo(f"{change.change} {printable(change.path)}")
            elif isinstance(change, FileOverflow):
                click.echo("overflow")
