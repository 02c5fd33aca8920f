"""`atoll port`: what listens in a sandbox, the address of it, and who may reach it."""

from __future__ import annotations

from contextlib import closing

import click
import msgspec

from atoll.cli.find import find
from atoll.cli.identity import identity_argument
from atoll.cli.options import Seconds
from atoll.cli.output import json_option, print_json, print_table, printable
from atoll.model import limits
from atoll.model.port import port_parse
from atoll.wire.public import PortAccessView, PortClosed, PortOpened


@click.group()
def port() -> None:
    """Show and change who may reach the servers inside a sandbox."""


@port.command("ls")
@identity_argument
@json_option
def list_(identity: str, as_json: bool) -> None:
    """List the ports that listen, and by which process."""
    with closing(find(identity)) as found:
        listening = found.ports.list()
    if as_json:
        print_json(msgspec.to_builtins(listening))
        return
    print_table(("PORT", "ADDRESS", "PROCESS"), [(str(one.port), one.address, one.process or "") for one in listening])


@port.command()
@identity_argument
@click.argument("number", metavar="PORT")
@click.option("--timeout", "timeout_s", type=Seconds(), default="30s", show_default=True, help="How long to wait.")
def wait(identity: str, number: str, timeout_s: float) -> None:
    """Wait until something listens on a port."""
    with closing(find(identity)) as found:
        found.ports.wait(port_parse(number), timeout_s=timeout_s)


@port.command()
@identity_argument
def watch(identity: str) -> None:
    """Print each port that opens or closes, until Ctrl-C; first those that are open."""
    with closing(find(identity)) as found:
        for event in found.ports.watch():
            if isinstance(event, PortClosed):
                click.echo(f"closed {event.port} {printable(event.address)}")
                continue
            word, opened = ("opened", [event.port]) if isinstance(event, PortOpened) else ("open", event.items)
            for one in opened:
                click.echo(f"{word} {one.port} {printable(one.address)} {printable(one.process or '')}".rstrip())


@port.command()
@identity_argument
@click.argument("number", metavar="PORT")
@click.option(
    "--expires",
    "expires_s",
    type=click.FloatRange(1, limits.PORT_LINK_S_MAX),
    default=limits.PORT_LINK_S_DEFAULT,
    show_default=True,
    help="Seconds for which the address of a private port is good.",
)
def url(identity: str, number: str, expires_s: float) -> None:
    """Print an address that opens a port in a browser or with curl."""
    with closing(find(identity)) as found:
        click.echo(found.ports.url(port_parse(number), expires_s=expires_s))


@port.command()
@identity_argument
@click.argument("number", metavar="PORT")
@click.option("--public/--private", "public", default=None, help="Open to everybody, or by key and link only.")
@click.option("--mask-host", metavar="HOST", help="What the server inside gets as its Host; empty for the caller's.")
@click.option("--revoke-links", is_flag=True, help="End all addresses that were given before.")
@json_option
def access(
    identity: str, number: str, public: bool | None, mask_host: str | None, revoke_links: bool, as_json: bool
) -> None:
    """Show who may reach a port, or change it: connections of those who may not any more are cut.

    \b
        atoll port access ID 8000 --public
        atoll port access ID 8000 --private --revoke-links
    """
    asked = port_parse(number)
    with closing(find(identity)) as found:
        if public is None and mask_host is None and not revoke_links:
            _show(found.ports.access(asked), as_json)
        else:
            changed = found.ports.set_access(asked, public=public, mask_host=mask_host, revoke_links=revoke_links)
            _show(changed, as_json)


def _show(view: PortAccessView, as_json: bool) -> None:
    if as_json:
        print_json(msgspec.to_builtins(view))
        return
    who = "public" if view.public else "private"
    click.echo(
        f"{view.port}  {who}  the server inside gets {view.mask_host or 'the name that was asked for'} as its Host"
    )
