"""`atoll events` and `atoll webhook`: the audit log, here and sent to an address."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

import click
import msgspec

from atoll.cli.options import Moment
from atoll.cli.output import json_option, print_json, print_table, printable
from atoll.cli.output import since as ago
from atoll.client import Events, Webhooks
from atoll.wire.public import EventView


@click.command()
@click.option("--follow", "-f", is_flag=True, help="Go on with what happens from now on.")
@click.option("--action", multiple=True, help="Only these, such as sandbox.killed or sandbox.*; may be given again.")
@click.option("--target", help="Only about this, such as the id of a sandbox.")
@click.option("--actor", help="Only by this key, by its id.")
@click.option("--result", help="Only with this result: ok, or the code of an error.")
@click.option("--since", type=Moment(), help="From this moment on, in UTC, or the last 2h.")
@click.option("--until", type=Moment(), help="Up to this moment.")
@click.option("--after", type=click.IntRange(0), help="Only what follows this number; --json shows numbers.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@click.option("--all-tenants", is_flag=True, help="Of all tenants; for the operator.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line, for programs.")
def events(
    follow: bool,
    action: tuple[str, ...],
    target: str | None,
    actor: str | None,
    result: str | None,
    since: datetime | None,
    until: datetime | None,
    after: int | None,
    limit: int,
    all_tenants: bool,
    as_json: bool,
) -> None:
    """Show who did what to what, from where, with which result."""
    if follow and (since or until):
        raise click.UsageError("--follow goes on from now; --since and --until are for what has been")
    found: Iterable[EventView] = (
        Events.follow(
            after=after,
            last=limit,
            actions=action,
            target=target,
            actor=actor,
            result=result,
            all_tenants=all_tenants,
        )
        if follow
        else Events.list(
            actions=action,
            target=target,
            actor=actor,
            result=result,
            since=since,
            until=until,
            after=after,
            limit=limit,
            all_tenants=all_tenants,
        )
    )
    for event in found:
        _print(event, as_json)


def _print(event: EventView, as_json: bool) -> None:
    if as_json:
        click.echo(msgspec.json.encode(event).decode())
        return
    detail = " ".join(f"{key}={value}" for key, value in event.detail.items())
    words = (f"{event.at:%Y-%m-%d %H:%M:%S}", event.action, event.target, event.result, event.actor, event.source)
    click.echo(printable("  ".join(filter(None, (*words, detail)))))


@click.group()
def webhook() -> None:
    """Have events of sandboxes posted to an address of yours. Needs a key with the scope admin."""


@webhook.command()
@click.argument("url")
@click.option("--action", multiple=True, help="Only these, such as sandbox.killed; may be given again.")
@json_option
def create(url: str, action: tuple[str, ...], as_json: bool) -> None:
    """Add a webhook, and print its id and the secret that signs what it gets."""
    made = Webhooks.create(url, actions=action)
    if as_json:
        print_json(msgspec.to_builtins(made))
    else:
        click.echo(f"{made.id}  {made.secret}")


@webhook.command()
@json_option
def ls(as_json: bool) -> None:
    """List the webhooks."""
    hooks = Webhooks.list()
    if as_json:
        print_json([msgspec.to_builtins(hook) for hook in hooks])
        return
    print_table(("ID", "URL", "ACTIONS"), [(hook.id, hook.url, " ".join(hook.actions) or "all") for hook in hooks])


@webhook.command()
@click.argument("webhook_id", metavar="ID")
@json_option
def deliveries(webhook_id: str, as_json: bool) -> None:
    """Show the newest deliveries of a webhook, and how they went."""
    found = Webhooks.deliveries(webhook_id)
    if as_json:
        print_json([msgspec.to_builtins(one) for one in found])
        return
    now = datetime.now(UTC)
    rows = [
        (one.action or "-", one.target, one.state, str(one.attempts), ago(one.updated_at, now), one.error)
        for one in found
    ]
    print_table(("ACTION", "TARGET", "STATE", "ATTEMPTS", "AGE", "ERROR"), rows)


@webhook.command()
@click.argument("webhook_id", metavar="ID")
def rm(webhook_id: str) -> None:
    """Remove a webhook."""
    Webhooks.remove(webhook_id)
