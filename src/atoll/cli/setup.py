"""`atoll setup`: make this host ready to run sandboxes."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import click

from atoll.model.errors import AtollError


@click.command()
@click.option(
    "--data", type=click.Path(path_type=Path), help="The server's data directory [ATOLL_DATA, /var/lib/atoll]."
)
@click.option("--cache", type=click.Path(path_type=Path), help="The machine's cache [ATOLL_CACHE, /var/cache/atoll].")
@click.option("--pool-gib", type=click.IntRange(min=2), help="Size of a new disk pool [80% of the free space].")
@click.option("--swap", "swap_size", metavar="SIZE", help="Make a swap file of this size, such as 4GiB.")
@click.option("--zram", "zram_size", metavar="SIZE", help="Make swap of this size in compressed memory instead.")
@click.option("--no-swap", is_flag=True, help="Take away the swap that set-up made.")
@click.option("--remove", is_flag=True, help="Unmount the disk pool and delete the data directory instead.")
def setup(
    data: Path | None,
    cache: Path | None,
    pool_gib: int | None,
    swap_size: str | None,
    zram_size: str | None,
    no_swap: bool,
    remove: bool,
) -> None:
    """Install what a host needs: runsc, the disk pool, the guest's interpreter and the built-in templates.

    With swap the memory of sandboxes in standby can be put aside; without, standby freezes only.
    """
    if sum(map(bool, (swap_size, zram_size, no_swap, remove))) > 1:
        raise click.UsageError("--swap, --zram, --no-swap and --remove exclude each other")
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
            asked = bool(swap_size or zram_size or no_swap)
            steps.run(layout, say, runsc_url=runsc_url, pool_bytes=(pool_gib or 0) << 30, swap_offer=not asked)
            _swap(layout.data, swap_size, zram_size, no_swap, say)
            say(f"this host is ready; data in {layout.data}")
    except AtollError as error:
        click.echo(f"set-up stopped: {error.message}", err=True)
        if error.hint:
            click.echo(f"what to do: {error.hint}", err=True)
        sys.exit(1)
    except KeyboardInterrupt:
        click.echo("set-up was interrupted; run it again to go on", err=True)
        sys.exit(130)


def _swap(data: Path, swap_size: str | None, zram_size: str | None, no_swap: bool, say: Callable[[str], None]) -> None:
    from atoll.client._exchange import parse_bytes
    from atoll.node.install import swap

    if no_swap:
        swap.remove(data, say)
    for kind, size in ((swap.FILE, swap_size), (swap.ZRAM, zram_size)):
        size_bytes = parse_bytes(size)
        if size_bytes is not None:
            swap.ensure(data, kind, size_bytes, say)
