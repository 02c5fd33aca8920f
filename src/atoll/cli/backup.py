"""`atoll backup` and `atoll restore`: the record of a server in one file, taken while it runs."""

from __future__ import annotations

import os
from pathlib import Path

import click

from atoll.cli.output import amount

data_option = click.option("--data", type=click.Path(path_type=Path), help="The server's data directory.")


@click.command()
@click.argument("target", type=click.Path(path_type=Path))
@data_option
def backup(target: Path, data: Path | None) -> None:
    """Write the server's record (database and keys, not the disks of sandboxes) to a file that must not exist yet."""
    from atoll.app import backup as backups
    from atoll.app import settings

    size_bytes = backups.backup(settings.load({"data": data}, os.environ), target)
    click.echo(f"{target}  {amount(size_bytes)}")


@click.command()
@click.argument("source", type=click.Path(path_type=Path, exists=True))
@data_option
@click.option("--replace", is_flag=True, help="Replace the record that is there.")
def restore(source: Path, data: Path | None, replace: bool) -> None:
    """Put a server's record back. The server must not run; sandboxes that it no longer knows go when it starts."""
    from atoll.app import backup as backups
    from atoll.app import settings
    from atoll.app.serve import locked

    chosen = settings.load({"data": data}, os.environ)
    with locked(chosen):
        backups.restore(chosen, source, replace=replace)
    click.echo(f"restored {source}; start the server to go on from there")
