"""`atoll template`: what sandboxes can be created from."""

from __future__ import annotations

import click
import msgspec

from atoll.cli.output import json_option, print_json, print_table
from atoll.client import Sandbox


@click.group()
def template() -> None:
    """Show what sandboxes can be created from."""


@template.command()
@json_option
def ls(as_json: bool) -> None:
    """List the templates of the server."""
    views = Sandbox.templates()
    if as_json:
        print_json([msgspec.to_builtins(view) for view in views])
        return
    rows = [(view.name, view.key[:12], view.user, view.workdir) for view in views]
    print_table(("NAME", "KEY", "USER", "WORKDIR"), rows)
