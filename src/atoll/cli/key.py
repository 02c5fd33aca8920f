"""`atoll key`: make, list and revoke API keys."""

from __future__ import annotations

from datetime import UTC, datetime

import click
import msgspec

from atoll.cli.options import Seconds, key_quota_options
from atoll.cli.output import json_option, print_json, print_table, quota_words, since, until
from atoll.client import Keys, QuotaBody
from atoll.wire.public import KeyView

tenant_option = click.option("--tenant", help="Of another tenant; for the operator.")


@click.group()
def key() -> None:
    """Make, list and revoke API keys. Needs a key with the scope admin."""


@key.command()
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(["read", "write", "admin"]),
    help="What it may do; may be given again [read and write].",
)
@click.option("--member", help="The member that it belongs to.")
@click.option("--expires", "expires_in_s", type=Seconds(), help="Until it opens nothing any more [never].")
@tenant_option
@key_quota_options
@json_option
def create(
    name: str,
    scopes: tuple[str, ...],
    member: str | None,
    expires_in_s: float | None,
    tenant: str | None,
    quota: QuotaBody,
    as_json: bool,
) -> None:
    """Make a key and print it. It is shown this once."""
    made = Keys.create(
        name,
        scopes=scopes or ("read", "write"),
        member=member,
        expires_in_s=expires_in_s,
        quota=quota,
        tenant=tenant,
    )
    if as_json:
        print_json(msgspec.to_builtins(made))
    else:
        click.echo(made.key)


@key.command()
@tenant_option
@click.option("--all", "-a", "every", is_flag=True, help="Also those that are revoked or expired.")
@json_option
def ls(tenant: str | None, every: bool, as_json: bool) -> None:
    """List keys; the keys themselves are not kept, only their hashes."""
    now = datetime.now(UTC)
    views = [view for view in Keys.list(tenant=tenant) if every or _state(view, now) == "valid"]
    if as_json:
        print_json([msgspec.to_builtins(view) for view in views])
        return
    rows = [_row(view, now) for view in views]
    print_table(("ID", "NAME", "SCOPES", "STATE", "AGE", "ENDS IN", "LAST USED", "QUOTA"), rows)


@key.command()
@click.argument("key_id", metavar="ID")
@tenant_option
def revoke(key_id: str, tenant: str | None) -> None:
    """Have a key open nothing from now on."""
    click.echo(Keys.revoke(key_id, tenant=tenant).id)


def _row(view: KeyView, now: datetime) -> tuple[str, ...]:
    return (
        view.id,
        view.name,
        ",".join(view.scopes),
        _state(view, now),
        since(view.created_at, now),
        until(view.expires_at, now),
        _used(view, now),
        quota_words(view.quota),
    )


def _state(view: KeyView, now: datetime) -> str:
    if view.revoked_at is not None:
        return "revoked"
    return "expired" if view.expires_at is not None and view.expires_at <= now else "valid"


def _used(view: KeyView, now: datetime) -> str:
    return "never" if view.last_used_at is None else f"{since(view.last_used_at, now)} ago"
