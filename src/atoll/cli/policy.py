"""`atoll policy`: what a sandbox may reach, what it did there, what it waits for; and lists for the configuration."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal, cast

import click
import msgspec

from atoll.cli.find import find
from atoll.cli.identity import identity_argument
from atoll.cli.options import PolicyFile
from atoll.cli.output import amount, json_option, print_json, print_table
from atoll.cli.policyhosts import proposed
from atoll.client import Sandbox
from atoll.wire.public.policies import NetworkEventView, PolicyBody, PolicyView


@click.group()
def policy() -> None:
    """Show and change what a sandbox may reach."""


@policy.command()
@identity_argument
@json_option
def show(identity: str, as_json: bool) -> None:
    """Show the policy that is in force."""
    with _found(identity) as found:
        _print_policy(found.network.policy(), as_json)


@policy.command("set")
@identity_argument
@click.option("--mode", type=click.Choice(["nothing", "listed", "public"]), help="What needs no rule.")
@click.option(
    "--allow", "-a", multiple=True, metavar="RULE", help="A host, *.suffix, network or @list; again for more."
)
@click.option("--deny", "-d", multiple=True, metavar="RULE", help="The same, and it wins.")
@click.option("--ask/--no-ask", default=None, help="Whether what no rule names waits for a person.")
@click.option("--ask-s", type=click.FloatRange(1), help="Seconds that it waits; no word by then is a refusal.")
@click.option("--inspect/--no-inspect", default=None, help="Whether all TLS ends at the proxy.")
@click.option("--bytes-max", type=click.IntRange(0), help="Bytes in all, both ways.")
@click.option("--rate", "rate_bytes_per_s", type=click.IntRange(1), help="Bytes a second, both ways.")
@click.option("--connections-max", type=click.IntRange(1), help="Connections at once.")
@click.option("--file", "file", type=PolicyFile(), help="A policy in JSON.")
@json_option
def set_(identity: str, file: dict[str, Any] | None, as_json: bool, **options: Any) -> None:
    """Replace the policy. What is not said has its default; without any rule nothing is reached.

    \b
        atoll policy set ID --allow example.org --allow '*.example.net:443'
        atoll policy set ID --mode public --deny 10.0.0.0/8
    """
    given = {name: _listed(value) for name, value in options.items() if value not in (None, ())}
    with _found(identity) as found:
        _print_policy(found.network.set_policy({**(file or {}), **given}), as_json)


@policy.command()
@identity_argument
@click.argument("url")
@click.option("--method", "-X", default="GET", show_default=True, help="Of the request, where rules look at it.")
@json_option
def test(identity: str, url: str, method: str, as_json: bool) -> int:
    """Say what would happen to a request or a connection, and by which rule; 1 is the exit code of a refusal."""
    with _found(identity) as found:
        tested = found.network.test(url, method=method)
    if as_json:
        print_json(msgspec.to_builtins(tested))
    else:
        words = ["allowed" if tested.allowed else "refused", f"({tested.reason})"]
        words += [f"by {tested.rule}"] if tested.rule else []
        words += [f"at {', '.join(tested.addresses)}"] if tested.addresses else []
        words += ["requests are looked at"] if tested.looked_inside else []
        words += [f"secrets: {', '.join(tested.secrets)}"] if tested.secrets else []
        click.echo(" ".join(words))
    return 0 if tested.allowed else 1


@policy.command()
@identity_argument
@json_option
def log(identity: str, as_json: bool) -> None:
    """Show the sandbox's traffic and its latest connections, allowed and refused."""
    with _found(identity) as found:
        status = found.network.status()
    if as_json:
        print_json(msgspec.to_builtins(status))
        return
    print_table(
        ("AT", "WHAT", "HOST", "PORT", "DECISION", "WHY", "UP", "DOWN"), [_row(event) for event in status.events]
    )
    refused = f"{status.refused_total} refused, {status.packets_dropped} packets dropped"
    click.echo(f"{amount(status.bytes_up)} up, {amount(status.bytes_down)} down, {refused}")


@policy.command()
@identity_argument
@json_option
def asks(identity: str, as_json: bool) -> None:
    """List the connections that wait for a person's word."""
    with _found(identity) as found:
        waiting = found.network.status().asks
    if as_json:
        print_json(msgspec.to_builtins(waiting))
        return
    print_table(("ID", "HOST", "PORT"), [(ask.id, ask.host, str(ask.port)) for ask in waiting])


@policy.command()
@identity_argument
@click.argument("ask", metavar="ASK")
@click.argument("word", metavar="WORD", type=click.Choice(["once", "always", "refuse"]))
def answer(identity: str, ask: str, word: str) -> None:
    """Answer a connection that waits: once, always or refuse."""
    with _found(identity) as found:
        answered = found.network.answer(ask, cast(Literal["once", "always", "refuse"], word))
    click.echo(f"{answered.host}:{answered.port} {word}")


@policy.command("secrets")
@identity_argument
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--none", is_flag=True, help="It has no secret from now on.")
@json_option
def secrets_(identity: str, names: tuple[str, ...], none: bool, as_json: bool) -> None:
    """Show which secrets a sandbox has, or replace them.

    What it loses it loses at once. Programs that are started from now on see the placeholders of those that are new.
    """
    if names and none:
        raise click.UsageError("--none goes with no name")
    with _found(identity) as found:
        view = found.network.set_secrets(names) if names or none else found.network.policy()
    if as_json:
        print_json(view.secrets)
    else:
        print_table(("SECRET",), [(name,) for name in view.secrets])


@policy.command()
@json_option
def hosts(as_json: bool) -> None:
    """Propose lists of hosts from this machine's own pip, npm, apt and git configuration.

    Put what it prints into the server's configuration, and policies can say @packages and @git.
    """
    lists = proposed(Path.home(), Path("/etc"), Path.cwd(), os.environ)
    if as_json:
        print_json(lists)
        return
    text = "; ".join(f"{name}={','.join(found)}" for name, found in lists.items() if found)
    click.echo(f'egress_lists = "{text}"')


class _Found:
    """A sandbox that is let go of at the end of a block."""

    def __init__(self, identity: str) -> None:
        self._sandbox = find(identity)

    def __enter__(self) -> Sandbox:
        return self._sandbox

    def __exit__(self, *_: object) -> None:
        self._sandbox.close()


def _found(identity: str) -> _Found:
    return _Found(identity)


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _print_policy(view: PolicyView, as_json: bool) -> None:
    fields = msgspec.to_builtins(view)
    if as_json:
        print_json(fields)
        return
    enforced = fields.pop("enforced")
    default = msgspec.to_builtins(PolicyBody())
    for name, value in fields.items():
        if name in ("mode", "allow", "deny") or value not in (None, False, [], {}, default.get(name)):
            shown = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            click.echo(f"{name.ljust(16)}  {shown or '-'}")
    for name in ("allow", "deny"):
        if enforced[name]:
            click.echo(f"{f'enforced {name}'.ljust(16)}  {', '.join(enforced[name])}")


def _row(event: NetworkEventView) -> tuple[str, ...]:
    decision = "allowed" if event.allowed else "refused"
    host = event.name or event.address or event.secret
    why = f"{event.reason} {event.rule}".strip()
    kind = f"{event.kind} {event.secret}".strip()
    moment = f"{event.at:%H:%M:%S}"
    return moment, kind, host, str(event.port or ""), decision, why, amount(event.bytes_up), amount(event.bytes_down)
