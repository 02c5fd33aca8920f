"""`atoll tenant`: who shares the server, what they may have, and who their members are."""

from __future__ import annotations

from datetime import UTC, datetime

import click
import msgspec

from atoll.cli.key import tenant_option
from atoll.cli.options import tenant_quota_options
from atoll.cli.output import amount, json_option, print_json, print_table, quota_words, since
from atoll.client import QuotaBody, Tenants
from atoll.wire.public import TenantView


@click.group()
def tenant() -> None:
    """Tenants share a server and see nothing of each other. Making them is for the operator."""


@tenant.command()
@click.argument("name")
@tenant_quota_options
@json_option
def create(name: str, quota: QuotaBody, as_json: bool) -> None:
    """Make a tenant. Then make its first key: atoll key create NAME --scope admin --tenant TENANT"""
    _show(Tenants.create(name, quota=quota), as_json)


@tenant.command()
@json_option
def ls(as_json: bool) -> None:
    """List the tenants."""
    views = Tenants.list()
    if as_json:
        print_json([msgspec.to_builtins(view) for view in views])
        return
    now = datetime.now(UTC)
    print_table(("NAME", "AGE", "QUOTA"), [(v.name, since(v.created_at, now), quota_words(v.quota)) for v in views])


@tenant.command()
@click.argument("name")
@json_option
def info(name: str, as_json: bool) -> None:
    """Show a tenant and what it has now."""
    _show(Tenants.info(name), as_json)


@tenant.command()
@click.argument("name")
@tenant_quota_options
@json_option
def quota(name: str, quota: QuotaBody, as_json: bool) -> None:
    """Say what a tenant may have; what is not given has no limit."""
    _show(Tenants.set_quota(name, quota), as_json)


@tenant.command()
@click.argument("name")
def rm(name: str) -> None:
    """Remove a tenant: its keys open nothing any more, its sandboxes are ended."""
    Tenants.remove(name)


@tenant.command()
@click.argument("name")
@click.option("--scope", "scopes", multiple=True, type=click.Choice(["read", "write", "admin"]))
@tenant_option
def invite(name: str, scopes: tuple[str, ...], tenant: str | None) -> None:
    """Add a member, whose keys can do no more than its scopes say."""
    click.echo(Tenants.add_member(name, scopes=scopes or ("read", "write"), tenant=tenant).id)


@tenant.command()
@tenant_option
@json_option
def members(tenant: str | None, as_json: bool) -> None:
    """List the members of a tenant."""
    views = Tenants.members(tenant=tenant)
    if as_json:
        print_json([msgspec.to_builtins(view) for view in views])
        return
    now = datetime.now(UTC)
    rows = [(view.id, view.name, ",".join(view.scopes), since(view.created_at, now)) for view in views]
    print_table(("ID", "NAME", "SCOPES", "AGE"), rows)


@tenant.command()
@click.argument("member")
@tenant_option
def dismiss(member: str, tenant: str | None) -> None:
    """Remove a member, by id or name, and revoke its keys."""
    click.echo(Tenants.remove_member(member, tenant=tenant).id)


def _show(view: TenantView, as_json: bool) -> None:
    if as_json:
        print_json(msgspec.to_builtins(view))
        return
    held = view.holding
    click.echo(f"name   {view.name}")
    click.echo(f"quota  {quota_words(view.quota)}")
    if held is not None:
        parts = f"{held.cpu:g} cores, {amount(held.memory_bytes)} of memory, {amount(held.disk_bytes)} of disk"
        click.echo(f"has    {held.sandboxes} sandboxes, {parts}")
