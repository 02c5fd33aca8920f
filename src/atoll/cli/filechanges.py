"""`atoll file rm`, `mv`, `cp`, `mkdir`, `chmod`, `chown`, `ln`, `touch`, `replace`, `attrs`: changes to files."""

from __future__ import annotations

import click
import msgspec

from atoll.cli.options import Pairs, Rights
from atoll.cli.output import json_option, print_json, printable
from atoll.cli.place import Place, beside, opened, place_argument, places_argument, user_option

_recursive = click.option("--recursive", "-r", is_flag=True, help="With all that is below.")
_no_overwrite = click.option("--no-overwrite", is_flag=True, help="Refuse if there is something already.")
_parents = click.option("--parents", "-p", is_flag=True, help="Make the folders on the way.")


@click.command()
@places_argument
@_recursive
@click.option("--force", "-f", is_flag=True, help="What is not there is no error.")
@user_option
def rm(places: tuple[Place, ...], recursive: bool, force: bool, user: str | None) -> None:
    """Remove files, empty folders, or with -r folders with all that is in them."""
    for place in places:
        with opened(place) as found:
            found.files.remove(place.path, recursive=recursive, missing_ok=force, user=user)


@click.command()
@place_argument
@click.argument("target", metavar="PATH")
@_no_overwrite
@_parents
@user_option
def mv(place: Place, target: str, no_overwrite: bool, parents: bool, user: str | None) -> None:
    """Move or rename within a sandbox."""
    path = beside(place, target)
    with opened(place) as found:
        found.files.move(place.path, path, overwrite=not no_overwrite, parents=parents, user=user)


@click.command()
@place_argument
@click.argument("target", metavar="PATH")
@_no_overwrite
@_parents
@user_option
def cp(place: Place, target: str, no_overwrite: bool, parents: bool, user: str | None) -> None:
    """Copy within a sandbox; a folder with all that is in it. `atoll sandbox cp` copies in and out."""
    path = beside(place, target)
    with opened(place) as found:
        found.files.copy(place.path, path, overwrite=not no_overwrite, parents=parents, user=user)


@click.command()
@places_argument
@user_option
def mkdir(places: tuple[Place, ...], user: str | None) -> None:
    """Make folders, and those above them."""
    for place in places:
        with opened(place) as found:
            found.files.mkdir(place.path, user=user)


@click.command()
@click.argument("mode", type=Rights())
@places_argument
@_recursive
@user_option
def chmod(mode: int, places: tuple[Place, ...], recursive: bool, user: str | None) -> None:
    """Change rights, such as 755."""
    for place in places:
        with opened(place) as found:
            found.files.chmod(place.path, mode, recursive=recursive, user=user)


@click.command()
@click.argument("owner", metavar="OWNER[:GROUP]")
@places_argument
@_recursive
@user_option
def chown(owner: str, places: tuple[Place, ...], recursive: bool, user: str | None) -> None:
    """Change the owner, the group (`:GROUP`), or both; names or numbers.

    It needs the rights of root, to whom a path that is not absolute starts at /root.

    \b
        atoll file chown -u root www-data: ID:/srv/www
    """
    name, _, group = owner.partition(":")
    if not name and not group:
        raise click.UsageError(f"{owner!r} is not OWNER, OWNER:GROUP or :GROUP")
    for place in places:
        with opened(place) as found:
            found.files.chown(place.path, name or None, group or None, recursive=recursive, user=user)


@click.command()
@click.argument("target")
@place_argument
@user_option
def ln(target: str, place: Place, user: str | None) -> None:
    """Make PLACE a link that says TARGET, word for word."""
    with opened(place) as found:
        found.files.symlink(place.path, target, user=user)


@click.command()
@places_argument
@user_option
def touch(places: tuple[Place, ...], user: str | None) -> None:
    """Set the times of files to now; one that is not there is made, empty."""
    for place in places:
        with opened(place) as found:
            found.files.touch(place.path, user=user)


@click.command()
@place_argument
@click.argument("pattern")
@click.argument("replacement")
@click.option("--glob", default="*", help="Only in files of such a name.")
@click.option("--text", is_flag=True, help="PATTERN is a text, not a regular expression.")
@click.option("--ignore-case", "-i", is_flag=True)
@click.option("--dry-run", "-n", is_flag=True, help="Only say what would be done.")
@user_option
@json_option
def replace(
    place: Place,
    pattern: str,
    replacement: str,
    glob: str,
    text: bool,
    ignore_case: bool,
    dry_run: bool,
    user: str | None,
    as_json: bool,
) -> None:
    """Replace in a file, or in all below a folder, and say how often in which."""
    with opened(place) as found:
        answer = found.files.replace(
            place.path,
            pattern,
            replacement,
            glob=glob,
            regex=not text,
            ignore_case=ignore_case,
            dry_run=dry_run,
            user=user,
        )
    if as_json:
        print_json(msgspec.to_builtins(answer))
        return
    for item in answer.items:
        click.echo(f"{item.count}  {printable(item.path)}")
    if answer.truncated:
        click.echo("there are more", err=True)


@click.command()
@place_argument
@click.option("--set", "given", type=Pairs(), multiple=True, help="Set one, such as user.origin=build; again for more.")
@click.option("--rm", "removed", metavar="NAME", multiple=True, help="Remove one; again for more.")
@user_option
@json_option
def attrs(
    place: Place, given: tuple[tuple[str, str], ...], removed: tuple[str, ...], user: str | None, as_json: bool
) -> None:
    """Show the extended attributes of a file, or change some."""
    with opened(place) as found:
        for name, value in given:
            found.files.set_attribute(place.path, name, value.encode("utf-8", "surrogateescape"), user=user)
        for name in removed:
            found.files.set_attribute(place.path, name, None, user=user)
        if given or removed:
            return
        values = found.files.attributes(place.path, user=user)
    if as_json:
        print_json(msgspec.to_builtins(values))  # the bytes as base64, as over HTTP
        return
    for name, data in sorted(values.items()):
        click.echo(f"{printable(name)}={printable(data.decode('utf-8', 'backslashreplace'))}")


COMMANDS = (rm, mv, cp, mkdir, chmod, chown, ln, touch, replace, attrs)
