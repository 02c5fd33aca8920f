"""`atoll setup`: make this host ready to run sandboxes."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import click

from atoll.model.errors import AtollError


@click.command()
@click.option(
    "--data", type=click.Path(path_type=Path), help="The server's data directory [ATOLL_DATA, /var/lib/atoll]."
)
@click.option("--cache", type=click.Path(path_type=Path), help="The machine's cache [ATOLL_CACHE, /var/cache/atoll].")
@click.option("--pool-gib", type=click.IntRange(min=2), help="Size of a new disk pool [80% of the free space].")
@click.option("--remove", is_flag=True, help="Unmount the disk pool and delete the data directory instead.")
def setup(data: Path | None, cache: Path | None, pool_gib: int | None, remove: bool) -> None:
    """Install what a host needs: runsc, the disk pool, the guest's interpreter and the built-in templates."""
    import dataclasses

    from atoll.node.install import steps
    from atoll.node.install.layout import Layout

    layout = Layout.from_environment()
    layout = dataclasses.replace(
        layout, data=(data or layout.data).absolute(), cache=(cache or layout.cache).absolute()
    )
    started_s = time.monotonic()

    def say(line: str) -> None:
        click.echo(f"[{time.monotonic() - started_s:6.1f} s] {line}")

    try:
        if remove:
            steps.remove(layout, say)
        else:
            runsc_url = os.environ.get("ATOLL_RUNSC_URL", "")
            steps.run(layout, say, runsc_url=runsc_url, pool_bytes=(pool_gib or 0) << 30)
            say(f"this host is ready; data in {layout.data}")
    except AtollError as error:
        click.echo(f"set-up stopped: {error.message}", err=True)
        if error.hint:
            click.echo(f"what to do: {error.hint}", err=True)
        sys.exit(1)
    except KeyboardInterrupt:
        click.echo("set-up was interrupted; run it again to go on", err=True)
        sys.exit(130)
