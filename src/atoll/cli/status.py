"""`atoll status`: how the server is, on one screen."""

from __future__ import annotations

import click
import msgspec

from atoll.cli.output import amount, duration, json_option, paint, print_json, printable
from atoll.client import Usage
from atoll.wire.public import StatusView


@click.command()
@json_option
def status(as_json: bool) -> None:
    """Show sandboxes, pool, memory, disk, what this month has cost, and what should worry you."""
    view = Usage.status()
    if as_json:
        print_json(msgspec.to_builtins(view))
        return
    for name, value in _lines(view):
        click.echo(f"{name.ljust(10)} {printable(value)}")
    for warning in view.warnings:
        click.echo(f"{paint('warning:', 'yellow')} {printable(warning)}")


def _lines(view: StatusView) -> list[tuple[str, str]]:
    node = view.node
    counts = ", ".join(f"{count} {state}" for state, count in view.sandboxes.items() if count) or "none"
    ready = (
        f"{name}: {one.live} live, {one.shells} {'shell' if one.shells == 1 else 'shells'}"
        for name, one in node.warm.items()
    )
    warm = ("; ".join(ready) or "empty") + f" (at most {node.warm_max} each)" if node.warm_max else "off"
    return [
        ("server", view.version),
        ("tenant", f"{view.tenant} ({', '.join(view.scopes)})"),
        ("sandboxes", counts),
        ("pool", warm),
        (
            "memory",
            f"{amount(node.memory_available_bytes)} of {amount(node.memory_total_bytes)} available, "
            f"{amount(node.memory_promised_bytes)} promised",
        ),
        ("disk", f"{amount(node.disk_free_bytes)} of {amount(node.disk_total_bytes)} free"),
        ("month", f"{duration(view.month_s)} used, {view.month_money:.4f} {view.currency}".rstrip()),
    ]
