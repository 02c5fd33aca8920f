"""`atoll serve`: run the server in the foreground until a signal comes."""

from __future__ import annotations

import os
from pathlib import Path

import click

from atoll.model.errors import Unavailable


@click.command()
@click.option("--listen", metavar="HOST:PORT", help="Address and port; port 0 takes a free one [127.0.0.1:7070].")
@click.option("--data", type=click.Path(path_type=Path), help="The server's data directory [/var/lib/atoll].")
@click.option("--cache", type=click.Path(path_type=Path), help="What set-up has built [/var/cache/atoll].")
@click.option("--config", type=click.Path(path_type=Path), help="A TOML file with settings [/etc/atoll/atoll.toml].")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="What to log [info].")
@click.option("--log-format", type=click.Choice(["auto", "text", "json"]), help="How to log [auto].")
@click.option("--tls", is_flag=True, default=None, help="Serve with TLS, by the server's own CA [off].")
@click.option("--domain", help="Ports of sandboxes are at <port>-<id>.DOMAIN [localhost].")
@click.option("--drain", is_flag=True, help="Kill all sandboxes at the stop; else they go on without the server.")
def serve(
    listen: str | None,
    data: Path | None,
    cache: Path | None,
    config: Path | None,
    log_level: str | None,
    log_format: str | None,
    tls: bool | None,
    domain: str | None,
    drain: bool,
) -> None:
    """Run the server until SIGTERM or Ctrl-C. Needs root.

    Each setting is a flag, a variable (ATOLL_LISTEN, ATOLL_DATA, ...) or a line of the TOML file, in that order.
    """
    try:
        from atoll.app import settings
        from atoll.app.serve import run
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.partition(".")[0] == "atoll":
            raise
        raise Unavailable(
            f"the server's packages are not installed ({error.name} is missing)",
            code="not_installed",
            hint="pip install 'atoll[server]'",
        ) from error
    flags: dict[str, object] = {
        "listen": listen,
        "data": data,
        "cache": cache,
        "log_level": log_level,
        "log_format": log_format,
    }
    flags |= {"tls": tls, "domain": domain}
    run(settings.load(flags, os.environ, config), drain_on_stop=drain)
