"""`atoll secret`: keep, list and remove secrets that sandboxes use without holding them."""

from __future__ import annotations

import sys

import click
import msgspec

from atoll.cli.output import json_option, print_json, print_table
from atoll.client import Secrets


@click.group()
def secret() -> None:
    """Keep secrets that sandboxes use without holding them."""


@secret.command("set")
@click.argument("name")
@click.option("--host", "hosts", multiple=True, metavar="RULE", help="Where it may go; again for more.")
@click.option("--by-rule", is_flag=True, help="No hosts: it goes where a policy's rule sets a header with it.")
@click.option("--env", default="", help="The variable that holds the placeholder inside [the name].")
@click.option("--path", default="", help="A file that holds the placeholder inside.")
@click.option("--header", default="", help="A header that always gets the value.")
@click.option("--format", "format_", default="{}", show_default=True, help="How, such as 'Bearer {}'.")
@click.option("--query", is_flag=True, help="Also replace the placeholder in the query of requests.")
@click.option("--basic", is_flag=True, help="Also replace it inside basic authentication.")
@click.option("--keep-value", is_flag=True, help="Change the settings only.")
@json_option
def set_(
    name: str,
    hosts: tuple[str, ...],
    by_rule: bool,
    env: str,
    path: str,
    header: str,
    format_: str,
    query: bool,
    basic: bool,
    keep_value: bool,
    as_json: bool,
) -> None:
    """Keep a secret. Its value is read from standard input, so that no shell history has it.

    \b
        atoll secret set API_TOKEN --host api.example.org < token.txt
    """
    if not hosts and not by_rule:
        raise click.UsageError("say where it may go: --host, or --by-rule")
    view = Secrets.put(
        name,
        None if keep_value else _value(),
        hosts=hosts,
        env=env,
        path=path,
        header=header,
        format=format_,
        query=query,
        basic=basic,
        by_rule=by_rule,
    )
    if as_json:
        print_json(msgspec.to_builtins(view))
    else:
        click.echo(f"{view.name} version {view.version}")


@secret.command()
@json_option
def ls(as_json: bool) -> None:
    """List secrets; never their values."""
    views = Secrets.list()
    if as_json:
        print_json(msgspec.to_builtins(views))
        return
    rows = [(view.name, str(view.version), view.env, ", ".join(view.hosts), view.header or "-") for view in views]
    print_table(("NAME", "VERSION", "ENV", "HOSTS", "HEADER"), rows)


@secret.command()
@click.argument("name")
def rm(name: str) -> None:
    """Remove a secret; sandboxes lose it at once."""
    Secrets.remove(name)
    click.echo(name)


def _value() -> str:
    if sys.stdin.isatty():
        return str(click.prompt("value", hide_input=True))
    return sys.stdin.read().rstrip("\n")
