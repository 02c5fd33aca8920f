"""`atoll snapshot`: list, look at, delete, export and import snapshots."""

from __future__ import annotations

from datetime import UTC, datetime

import click
import msgspec

from atoll.cli.find import find
from atoll.cli.identity import identity_argument
from atoll.cli.options import Seconds
from atoll.cli.output import amount, json_option, print_json, print_table, printable, since, until
from atoll.client import Snapshot, SnapshotView
from atoll.model import ids
from atoll.model.errors import NotFound
from atoll.wire.public import SnapshotDiff


@click.group()
def snapshot() -> None:
    """List, look at, delete, export and import snapshots. They are taken with `atoll sandbox snapshot`."""


@snapshot.command()
@click.option("--sandbox", help="Only those of this sandbox.")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True)
@click.option("--space", is_flag=True, help="Also what each has alone and what it shares; takes seconds.")
@json_option
def ls(sandbox: str | None, limit: int, space: bool, as_json: bool) -> None:
    """List snapshots, newest first, with the space that they take."""
    views = list(Snapshot.list(sandbox=sandbox, limit=limit))
    spaces = [Snapshot.space(view) for view in views] if space else []
    if as_json:
        more = [msgspec.to_builtins(one) for one in spaces] or [{} for _ in views]
        print_json([msgspec.to_builtins(view) | extra for view, extra in zip(views, more, strict=True)])
        return
    now = datetime.now(UTC)
    headings: tuple[str, ...] = ("ID", "NAME", "TEMPLATE", "MEMORY", "DISK", "AGE", "EXPIRES IN")
    rows = [_row(view, now) for view in views]
    if space:
        headings += ("OWN", "SHARED")
        own = [(amount(one.own_bytes), amount(one.shared_bytes)) for one in spaces]
        rows = [row + more for row, more in zip(rows, own, strict=True)]
    print_table(headings, rows)


def _row(view: SnapshotView, now: datetime) -> tuple[str, ...]:
    memory = amount(view.memory_bytes) if view.has_memory else "-"
    expires = until(view.expires_at, now)
    return (
        view.id,
        view.name or "-",
        view.template,
        memory,
        amount(view.disk_bytes),
        since(view.created_at, now),
        expires,
    )


@snapshot.command()
@click.argument("reference", metavar="SNAPSHOT")
def info(reference: str) -> None:
    """Show all about one snapshot, as JSON, with the space that it has alone and that it shares."""
    view = Snapshot.get(reference)
    print_json(msgspec.to_builtins(view) | msgspec.to_builtins(Snapshot.space(view)))


def _difference(reference: str, other: str) -> SnapshotDiff:
    if ids.is_id(ids.SNAPSHOT, other):
        return Snapshot.diff(reference, other)
    try:
        sandbox = find(other)
    except NotFound as missing:
        try:
            return Snapshot.diff(reference, Snapshot.get(other))
        except NotFound:
            raise missing from None
    try:
        return sandbox.diff(reference)
    finally:
        sandbox.close()


@snapshot.command()
@click.argument("reference", metavar="SNAPSHOT")
@click.argument("other", metavar="ID")
@json_option
def diff(reference: str, other: str, as_json: bool) -> None:
    """Show what changed on the disk since a snapshot: in a sandbox until now, or until a later snapshot.

    A name is that of a sandbox if there is one, else of a snapshot.
    """
    found = _difference(reference, other)
    if as_json:
        print_json(msgspec.to_builtins(found))
        return
    marks = {"added": "+", "removed": "-", "changed": "~"}
    for item in found.items:
        click.echo(f"{marks.get(item.change, '?')} {printable(item.path)}")
    if found.truncated:
        click.echo("... and more", err=True)


@snapshot.command()
@click.argument("reference", metavar="SNAPSHOT")
@identity_argument
@click.argument("path")
def restore(reference: str, identity: str, path: str) -> None:
    """Put one file of a snapshot back into a sandbox."""
    sandbox = find(identity)
    try:
        sandbox.restore_file(reference, path)
    finally:
        sandbox.close()


@snapshot.command()
@click.argument("references", metavar="SNAPSHOT...", nargs=-1, required=True)
def rm(references: tuple[str, ...]) -> None:
    """Delete snapshots; what was made from them is not touched."""
    for reference in references:
        Snapshot.delete(reference)
        click.echo(reference)


@snapshot.command()
@click.argument("reference", metavar="SNAPSHOT")
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--no-memory", is_flag=True, help="Only its disk.")
def export(reference: str, file: str, no_memory: bool) -> None:
    """Write a snapshot to a file, to keep it or to carry it to another server.

    The file holds all that the sandbox held: keep it as you would keep a secret.
    """
    size_bytes = Snapshot.export(reference, file, memory=not no_memory)
    click.echo(f"{printable(file)}: {amount(size_bytes)}")


@snapshot.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option("--name", help="A name for it.")
@click.option("--no-memory", is_flag=True, help="Only its disk; needs no trust in the server that wrote the file.")
@click.option("--expires", "expires_s", type=Seconds(), help="When it is deleted: 1h, 7d.")
@json_option
def import_(file: str, name: str | None, no_memory: bool, expires_s: float | None, as_json: bool) -> None:
    """Make a snapshot of a file that `atoll snapshot export` wrote."""
    view = Snapshot.import_(file, name=name, memory=not no_memory, expires_s=expires_s)
    if as_json:
        print_json(msgspec.to_builtins(view))
    else:
        click.echo(view.id)
