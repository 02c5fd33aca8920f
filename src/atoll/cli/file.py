"""`atoll file`: look at the files of a sandbox, search them, watch them, and hand out addresses of them."""

from __future__ import annotations

from contextlib import closing

import click
import msgspec

from atoll.cli.copy import Place, parse_place
from atoll.cli.find import find
from atoll.cli.options import Seconds
from atoll.cli.output import json_option, print_json, print_table, printable
from atoll.client import FileChanged, FileOverflow, Listed
from atoll.wire.public import FileView

_LETTERS = {"directory": "d", "symlink": "l", "file": "-"}


@click.group()
def file() -> None:
    """Look at the files of a sandbox; `atoll sandbox cp` copies them. A PLACE is ID:PATH."""


def _place(text: str) -> Place:
    place = parse_place(text)
    if not place.sandbox:
        raise click.UsageError(f"{text!r} is not ID:PATH")
    return place


user_option = click.option("--user", "-u", help="The user whose rights are used: a name or a number.")


@file.command("ls")
@click.argument("place", metavar="PLACE")
@click.option("--depth", type=click.IntRange(1), default=1, show_default=True, help="Folders below it.")
@user_option
@json_option
def list_(place: str, depth: int, user: str | None, as_json: bool) -> None:
    """List a folder."""
    where = _place(place)
    with closing(find(where.sandbox)) as found:
        _print(found.files.list(where.path, depth=depth, user=user), as_json)


@file.command("find")
@click.argument("place", metavar="PLACE")
@click.argument("pattern")
@click.option("--type", "type_", type=click.Choice(["file", "directory", "symlink"]), help="Only these.")
@click.option("--limit", type=click.IntRange(1), default=10_000, show_default=True, help="Files to show at most.")
@user_option
@json_option
def find_(place: str, pattern: str, type_: str | None, limit: int, user: str | None, as_json: bool) -> None:
    """Find files below a folder by a pattern of their name, such as '*.py'."""
    where = _place(place)
    with closing(find(where.sandbox)) as found:
        _print(found.files.find(where.path, pattern, type=type_, limit=limit, user=user), as_json)


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
@click.argument("place", metavar="PLACE")
@click.option("--follow", is_flag=True, help="What a link leads to.")
@user_option
def stat(place: str, follow: bool, user: str | None) -> None:
    """Show all about a file, as JSON."""
    where = _place(place)
    with closing(find(where.sandbox)) as found:
        print_json(msgspec.to_builtins(found.files.stat(where.path, follow=follow, user=user)))


@file.command()
@click.argument("place", metavar="PLACE")
@click.argument("pattern")
@click.option("--glob", default="*", help="Only in files of such a name.")
@click.option("--text", is_flag=True, help="PATTERN is a text, not a regular expression.")
@click.option("--ignore-case", "-i", is_flag=True)
@click.option("--limit", type=click.IntRange(1), default=1000, show_default=True, help="Matches to show at most.")
@user_option
@json_option
def search(
    place: str,
    pattern: str,
    glob: str,
    text: bool,
    ignore_case: bool,
    limit: int,
    user: str | None,
    as_json: bool,
) -> int:
    """Find lines, in a file or in all below a folder. Ends with 1 if there is none."""
    where = _place(place)
    with closing(find(where.sandbox)) as found:
        answer = found.files.search(
            where.path, pattern, glob=glob, regex=not text, ignore_case=ignore_case, limit=limit, user=user
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
@click.argument("place", metavar="PLACE")
@click.option("--upload", is_flag=True, help="To PUT the file, not to GET it.")
@click.option("--expires", "expires_s", type=Seconds(), default="5m", show_default=True)
@user_option
def url(place: str, upload: bool, expires_s: float, user: str | None) -> None:
    """Print an address that opens this one file, for whoever has no key.

    \b
        curl -o data.csv "$(atoll file url ID:data.csv)"
        curl -T data.csv "$(atoll file url --upload ID:data.csv)"
    """
    where = _place(place)
    with closing(find(where.sandbox)) as found:
        made = found.files.upload_url if upload else found.files.download_url
        click.echo(made(where.path, expires_s=expires_s, user=user))


@file.command()
@click.argument("place", metavar="PLACE")
@click.option("--recursive", "-r", is_flag=True, help="Folders below it, too.")
@user_option
def watch(place: str, recursive: bool, user: str | None) -> None:
    """Print each change of a folder, until Ctrl-C; a line `overflow` says that some were lost."""
    where = _place(place)
    with (
        closing(find(where.sandbox)) as found,
        found.files.watch(where.path, recursive=recursive, user=user) as changes,
    ):
        click.echo("watching", err=True)
        for change in changes:
            if isinstance(change, FileChanged):
                click.echo(f"{change.change} {printable(change.path)}")
            elif isinstance(change, FileOverflow):
                click.echo("overflow")
