"""`atoll sandbox pause|resume|standby|snapshot|fork|rollback`: what can be done to a sandbox as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click
import msgspec

from atoll.cli.find import find
from atoll.cli.identity import identity_argument
from atoll.cli.options import Seconds
from atoll.cli.output import complain, json_option, print_json
from atoll.client import Sandbox, SandboxView


@contextmanager
def found(identity: str) -> Iterator[Sandbox]:
    sandbox = find(identity)
    try:
        yield sandbox
    finally:
        sandbox.close()


def _show(view: SandboxView, as_json: bool) -> None:
    if as_json:
        print_json(msgspec.to_builtins(view))
    else:
        click.echo(f"{view.id} {view.state}")


@click.command()
@identity_argument
@json_option
def standby(identity: str, as_json: bool) -> None:
    """Freeze a sandbox; the next call wakes it."""
    with found(identity) as sandbox:
        _show(sandbox.standby(), as_json)


@click.command()
@identity_argument
@click.option("--disk-only", is_flag=True, help="Keep only the disk; it boots afresh when it is resumed.")
@json_option
def pause(identity: str, disk_only: bool, as_json: bool) -> None:
    """Put a sandbox on disk; nothing of it runs until it is resumed."""
    with found(identity) as sandbox:
        _show(sandbox.pause(memory=not disk_only), as_json)


@click.command()
@identity_argument
@click.option("--timeout", "timeout_s", type=Seconds(), help="Its deadline from now on; else as at its creation.")
@click.option("--disk-only", is_flag=True, help="Boot one that is paused from its disk; its memory is gone.")
@json_option
def resume(identity: str, timeout_s: float | None, disk_only: bool, as_json: bool) -> None:
    """Wake a sandbox that is paused or in standby."""
    with found(identity) as sandbox:
        _show(sandbox.resume(timeout_s=timeout_s, memory=not disk_only), as_json)


@click.command()
@identity_argument
@click.argument("snapshot_reference", metavar="SNAPSHOT")
@json_option
def rollback(identity: str, snapshot_reference: str, as_json: bool) -> None:
    """Take a sandbox back to an earlier snapshot of itself."""
    with found(identity) as sandbox:
        _show(sandbox.rollback(snapshot_reference), as_json)


@click.command()
@identity_argument
@click.argument("name", required=False)
@click.option("--disk-only", is_flag=True, help="Without its memory.")
@click.option("--expires", "expires_s", type=Seconds(), help="How long to keep it.")
@click.option("--keep-last", type=click.IntRange(1), help="Remove all but so many unnamed snapshots of this sandbox.")
@json_option
def snapshot(
    identity: str, name: str | None, disk_only: bool, expires_s: float | None, keep_last: int | None, as_json: bool
) -> None:
    """Take a snapshot of a sandbox, which goes on, and print its id."""
    with found(identity) as sandbox:
        view = sandbox.snapshot(name, memory=not disk_only, expires_s=expires_s, keep_last=keep_last)
    if as_json:
        print_json(msgspec.to_builtins(view))
    else:
        click.echo(view.id)


@click.command()
@identity_argument
@click.option("--count", "-n", type=click.IntRange(1), default=1, show_default=True)
@click.option("--timeout", "timeout_s", type=Seconds(), help="The deadline of the copies.")
@json_option
def fork(identity: str, count: int, timeout_s: float | None, as_json: bool) -> int:
    """Make live copies of a sandbox and print their ids.

    If some cannot be made, says why and ends with 1; the others live.
    """
    with found(identity) as sandbox:
        copies = sandbox.fork(count, timeout_s=timeout_s, partial=True)
    ids = [copy.id for copy in copies]
    for copy in copies:
        copy.close()
    if as_json:
        print_json(ids)
    else:
        click.echo("\n".join(ids))
    for problem in copies.problems:
        complain(problem)
    return 1 if copies.problems else 0


COMMANDS = (standby, pause, resume, rollback, snapshot, fork)
