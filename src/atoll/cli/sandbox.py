"""`atoll sandbox`: create, list, look at, use and kill sandboxes."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Any

import click
import msgspec

from atoll.cli import states
from atoll.cli.copy import cp
from atoll.cli.find import find
from atoll.cli.identity import identities_argument, identity_argument
from atoll.cli.options import Inside, Moment, Pairs, Seconds, creation_options, env_option, network_options
from atoll.cli.output import amount, complain, json_option, print_json, print_table, since, until
from atoll.cli.stream import follow, stdin_is_given
from atoll.cli.top import top
from atoll.client import Sandbox, SandboxView
from atoll.model.errors import AtollError, NotFound
from atoll.model.lifecycle import LIVE, State
from atoll.model.sandbox import DeadlineAction


@click.group()
def sandbox() -> None:
    """Create, list, use and kill sandboxes.

    ID is an id, a name, or at least four letters of the beginning or end of an id.
    """


sandbox.add_command(cp)
for state_command in states.COMMANDS:
    sandbox.add_command(state_command)


@sandbox.command()
@click.option("--name", help="A name of your choice; unique among those that live.")
@click.option("--id", "external_id", metavar="ID", help="An id of your choice; it is found by that for ever.")
@click.option("--idempotency-key", metavar="KEY", help="The same key again gives back the same sandbox.")
@click.option("--metadata", "-m", multiple=True, type=Pairs(), help="A label; may be given again.")
@click.option("--timeout", "timeout_s", type=Seconds(), default="300", show_default=True, help="Its deadline.")
@click.option(
    "--on-deadline", type=click.Choice([action.value for action in DeadlineAction]), default="kill", show_default=True
)
@click.option("--idle", "idle_timeout_s", type=Seconds(), help="The same after this long without use.")
@click.option("--auto-resume", is_flag=True, help="A call wakes it when it is paused.")
@click.option("--budget-s", type=float, help="Seconds that it may run in all.")
@click.option("--budget-money", type=float, help="What it may cost in all.")
@click.option(
    "--on-budget", type=click.Choice([action.value for action in DeadlineAction]), default="kill", show_default=True
)
@click.option("--disk-only", is_flag=True, help="Of a snapshot: boot its disk, without its memory.")
@click.option("--volume", "volumes", multiple=True, type=Pairs(), metavar="PATH=NAME[:ro]", help="Mount a volume.")
@network_options
@click.option("--pids", type=int, help="Processes and threads that it may have.")
@env_option
@creation_options
@json_option
def create(
    name: str | None,
    external_id: str | None,
    idempotency_key: str | None,
    metadata: tuple[tuple[str, str], ...],
    timeout_s: float,
    on_deadline: str,
    idle_timeout_s: float | None,
    auto_resume: bool,
    budget_s: float | None,
    budget_money: float | None,
    on_budget: str,
    disk_only: bool,
    volumes: tuple[tuple[str, str], ...],
    policy: dict[str, Any] | None,
    secrets: tuple[str, ...],
    env: tuple[tuple[str, str], ...],
    template: str,
    cpu: float | None,
    memory: str | None,
    disk: str | None,
    pids: int | None,
    as_json: bool,
) -> None:
    """Create a sandbox and print its id."""
    made = Sandbox.create(
        template,
        name=name,
        external_id=external_id,
        idempotency_key=idempotency_key,
        metadata=dict(metadata),
        env=dict(env),
        cpu=cpu,
        memory=memory,
        disk=disk,
        pids=pids,
        timeout_s=timeout_s,
        on_deadline=on_deadline,
        idle_timeout_s=idle_timeout_s,
        auto_resume=auto_resume,
        budget_s=budget_s,
        budget_money=budget_money,
        on_budget=on_budget,
        with_memory=not disk_only,
        volumes=dict(volumes),
        policy=policy,
        secrets=secrets,
    )
    if as_json:
        print_json({**msgspec.to_builtins(made.info()), "steps_ms": made.steps_ms})
    else:
        click.echo(made.id)
    made.close()


@sandbox.command()
@click.option("--all", "-a", "also_ended", is_flag=True, help="Also those that have ended.")
@click.option(
    "--state", multiple=True, type=click.Choice([one.value for one in State]), help="Only those; again for more."
)
@click.option("--name", help="Only those with this name.")
@click.option("--template", "-t", help="Only those of this template.")
@click.option("--metadata", "-m", multiple=True, type=Pairs(), help="Only those with this label.")
@click.option("--since", "after", type=Moment(), help="Only those created since then: 2026-05-31, or 2h ago.")
@click.option("--until", "before", type=Moment(), help="Only those created before.")
@click.option("--count", is_flag=True, help="Only say how many there are.")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True)
@json_option
def ls(
    also_ended: bool,
    state: tuple[str, ...],
    name: str | None,
    template: str | None,
    metadata: tuple[tuple[str, str], ...],
    after: datetime | None,
    before: datetime | None,
    count: bool,
    limit: int,
    as_json: bool,
) -> None:
    """List sandboxes, newest first."""
    wanted: dict[str, Any] = {
        "state": state or (None if also_ended else sorted(LIVE)),
        "name": name,
        "template": template,
        "metadata": dict(metadata),
        "created_after": after,
        "created_before": before,
    }
    if count:
        click.echo(Sandbox.count(**wanted))
        return
    views = list(Sandbox.list(**wanted, limit=limit))
    if as_json:
        print_json([msgspec.to_builtins(view) for view in views])
        return
    now = datetime.now(UTC)
    print_table(("ID", "NAME", "TEMPLATE", "STATE", "AGE", "ENDS IN"), [_row(view, now) for view in views])


def _row(view: SandboxView, now: datetime) -> tuple[str, ...]:
    lives = view.state in LIVE
    why = view.sleep_reason if lives else view.end_reason
    state = f"{view.state} ({why})" if why else view.state
    ends = until(view.deadline_at, now) if lives and not _sleeps_on(view, now) else "-"
    return view.id, view.name or "-", view.template, state, since(view.created_at, now), ends


@sandbox.command()
@identity_argument
@json_option
def info(identity: str, as_json: bool) -> None:
    """Show all about one sandbox."""
    found = find(identity)
    view = found.info()
    found.close()
    if as_json:
        print_json(msgspec.to_builtins(view))
        return
    rows = _details(view, datetime.now(UTC))
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        click.echo(f"{name.ljust(width)}  {value}")


def _details(view: SandboxView, now: datetime) -> list[tuple[str, str]]:
    limits = view.resources
    rows = [
        ("id", view.id),
        ("name", view.name or "-"),
        *([("your id", view.external_id)] if view.external_id else []),
        ("template", view.template),
        ("state", f"{view.state} ({view.sleep_reason})" if view.sleep_reason else view.state),
        ("cpu", f"{limits.cpu:g}"),
        ("memory", amount(limits.memory_bytes)),
        ("disk", amount(limits.disk_bytes)),
        ("processes", str(limits.pids)),
        ("created", f"{view.created_at:%Y-%m-%d %H:%M:%S} UTC ({since(view.created_at, now)} ago)"),
    ]
    rows += _times(view, now) if view.state in LIVE else []
    rows += [("snapshot", view.snapshot_id)] if view.snapshot_id else []
    rows += [(f"volume {one.path}", f"{one.volume}{', read-only' * one.read_only}") for one in view.volumes]
    for what, value in (("seconds", view.budget_s), ("money", view.budget_money)):
        if value is not None:
            rows.append((f"budget {what}", f"{value:g}, then {view.on_budget}"))
    if view.ended_at is not None:
        rows.append(("ended", f"{view.ended_at:%Y-%m-%d %H:%M:%S} UTC ({since(view.ended_at, now)} ago)"))
        rows.append(("reason", " ".join(filter(None, (view.end_reason, view.end_detail)))))
    return rows + [(f"metadata {key}", value) for key, value in sorted(view.metadata.items())]


def _sleeps_on(view: SandboxView, now: datetime) -> bool:
    """Whether no deadline holds: it is paused, or was put to sleep at its deadline."""
    return view.state == "paused" or (view.state == "standby" and view.deadline_at <= now)


def _times(view: SandboxView, now: datetime) -> list[tuple[str, str]]:
    """When it will be stopped, how, and whether it wakes by itself."""
    when = f"{view.deadline_at:%Y-%m-%d %H:%M:%S} UTC (in {until(view.deadline_at, now)})"
    if _sleeps_on(view, now):
        when = "none while it sleeps"
    rows = [("deadline", f"{when}, then {view.on_deadline}")]
    if view.idle_timeout_s is not None:
        rows.append(("idle", f"{view.on_deadline} after {view.idle_timeout_s:g} s without call, output or traffic"))
    if view.auto_resume:
        rows.append(("wakes", "from a pause by any call"))
    return rows


@sandbox.command()
@identity_argument
@click.option("--seconds", type=float, help="Seconds that it may run in all.")
@click.option("--money", type=float, help="What it may cost in all.")
@click.option(
    "--on-budget", type=click.Choice([action.value for action in DeadlineAction]), help="What happens when it is spent."
)
def budget(identity: str, seconds: float | None, money: float | None, on_budget: str | None) -> None:
    """Change the budget of a sandbox; what it has used already counts. What is left out is no bound."""
    found = find(identity)
    try:
        found.set_budget(seconds=seconds, money=money, on_budget=on_budget)
    finally:
        found.close()


@sandbox.command()
@identity_argument
@click.argument("duration_s", metavar="DURATION", type=Seconds())
def timeout(identity: str, duration_s: float) -> None:
    """Move the deadline of a sandbox, later or earlier: it is so long from now on."""
    found = find(identity)
    try:
        view = found.set_timeout(duration_s)
        click.echo(f"{view.deadline_at:%Y-%m-%d %H:%M:%S} UTC")
    finally:
        found.close()


@sandbox.command("start-log")
@identity_argument
def start_log(identity: str) -> None:
    """Show how the start of a sandbox went that failed."""
    found = find(identity)
    try:
        click.echo(found.start_log() or "it started", nl=True)
    finally:
        found.close()


@sandbox.command("exec", cls=Inside)
@identity_argument
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--cwd", help="The folder to run in.")
@click.option("--user", "-u", help="The user to run as.")
@click.option("--timeout", "timeout_s", type=Seconds(), help="End the command after this time.")
@click.option("--login", is_flag=True, help="In a login shell.")
@env_option
def exec_(
    identity: str,
    command: tuple[str, ...],
    cwd: str | None,
    user: str | None,
    timeout_s: float | None,
    login: bool,
    env: tuple[tuple[str, str], ...],
) -> int:
    """Run a command in a sandbox, with its output and exit code here.

    One word is a line for the shell; several are a program and its arguments. Options come before the command. Ctrl-C
    goes to the command.

    \b
        atoll sandbox exec ID 'ls | wc -l'
        atoll sandbox exec ID -- python3 -c 'print(1)'
        cat data.csv | atoll sandbox exec ID wc -l
    """
    words = command[1:] if command[0] == "--" else command
    if not words:
        raise click.UsageError("no command was given")
    feed_stdin = stdin_is_given()
    found = find(identity)
    try:
        process = found.commands.start(
            words[0] if len(words) == 1 else list(words),
            env=dict(env),
            cwd=cwd,
            user=user,
            timeout_s=timeout_s,
            stdin=feed_stdin,
            login=login,
        )
        return follow(process, feed_stdin=feed_stdin)
    finally:
        found.close()


@sandbox.command()
@identities_argument
@click.option("--all", "-a", "every", is_flag=True, help="All sandboxes that live.")
@json_option
def kill(identities: tuple[str, ...], every: bool, as_json: bool) -> int:
    """Kill sandboxes, and all that is in them."""
    if every == bool(identities):
        raise click.UsageError("name the sandboxes, or say --all")
    wanted = [view.id for view in Sandbox.list(state=sorted(LIVE))] if every else list(identities)
    killed: list[str] = []
    failures = 0
    for identity in wanted:
        try:
            killed.append(_kill(identity))
        except AtollError as error:
            if every and isinstance(error, NotFound):
                continue  # it ended between the list and now
            complain(error)
            failures += 1
    if as_json:
        print_json(killed)
    else:
        sys.stdout.write("".join(f"{identity}\n" for identity in killed))
    return 1 if failures else 0


def _kill(identity: str) -> str:
    found = find(identity)
    try:
        found.kill()
        return found.id
    finally:
        found.close()


sandbox.add_command(top)
