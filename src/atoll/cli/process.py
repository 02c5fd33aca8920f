"""`atoll process`: commands that run on their own in a sandbox, listed, read again, fed and signalled."""

from __future__ import annotations

from contextlib import closing

import click
import msgspec

from atoll.cli.find import find
from atoll.cli.identity import identity_argument
from atoll.cli.options import Inside, Seconds, env_option
from atoll.cli.output import json_option, print_json, print_table
from atoll.cli.stream import follow, show, standard_input
from atoll.wire.public import ProcessView

_COMMAND_CHARS = 60


@click.group()
def process() -> None:
    """Start, list, read, feed and signal processes in a sandbox. A PROCESS is an id, a pid or a tag."""


@process.command("ls")
@identity_argument
@json_option
def list_(identity: str, as_json: bool) -> None:
    """List what was started there, also what ended a short while ago."""
    with closing(find(identity)) as found:
        views = found.commands.list()
    if as_json:
        print_json(msgspec.to_builtins(views))
        return
    headings = ("ID", "PID", "TAG", "USER", "STATE", "COMMAND")
    print_table(
        headings,
        [
            (view.id, str(view.pid), view.tag or "", view.user, _state(view), " ".join(view.argv)[:_COMMAND_CHARS])
            for view in views
        ],
    )


def _state(view: ProcessView) -> str:
    if view.running:
        return "running"
    why = "time limit" if view.timed_out else "out of memory" if view.oom else ""
    end = f"signal {view.signal}" if view.signal is not None else f"code {view.exit_code}"
    return f"{end}, {why}" if why else end


@process.command(cls=Inside)
@identity_argument
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--tag", help="A name to find it again by.")
@click.option("--cwd", help="The folder to run in.")
@click.option("--user", "-u", help="The user to run as: a name or a number.")
@click.option("--timeout", "timeout_s", type=Seconds(), help="End it after this time.")
@click.option("--login", is_flag=True, help="In a login shell.")
@click.option("--stdin", is_flag=True, help="With a standard input, for `atoll process stdin`.")
@env_option
def start(
    identity: str,
    command: tuple[str, ...],
    tag: str | None,
    cwd: str | None,
    user: str | None,
    timeout_s: float | None,
    login: bool,
    stdin: bool,
    env: tuple[tuple[str, str], ...],
) -> None:
    """Start a command, print its id and leave it running; `atoll process logs -f` follows it.

    \b
        atoll process start ID --tag web python3 -m http.server 8000
        atoll process logs -f ID web
    """
    words = list(command[1:] if command[0] == "--" else command)
    if not words:
        raise click.UsageError("no command was given")
    with closing(find(identity)) as found:
        started = found.commands.start(
            words[0] if len(words) == 1 else words,
            env=dict(env),
            cwd=cwd,
            user=user,
            timeout_s=timeout_s,
            tag=tag,
            login=login,
            stdin=stdin,
        )
        click.echo(started.id)


@process.command()
@identity_argument
@click.argument("reference", metavar="PROCESS")
@click.option("--follow", "-f", "following", is_flag=True, help="Until its end, with its exit code.")
def logs(identity: str, reference: str, following: bool) -> int:
    """Show the output of a process that is kept: the last 2 MiB of each stream."""
    with closing(find(identity)) as found:
        attached = found.commands.attach(_process(reference))
        if following:
            return follow(attached)
        for event in attached.read():
            show(event)
        return 0


@process.command()
@identity_argument
@click.argument("reference", metavar="PROCESS")
@click.option("--close", is_flag=True, help="And then it reads the end.")
def stdin(identity: str, reference: str, close: bool) -> None:
    """Pass our standard input on to a process that was started with --stdin.

    
        echo 'print(1)' | atoll process stdin ID repl
    """
    with closing(find(identity)) as found:
        found.commands.attach(_process(reference)).write(standard_input(), close=close)


@process.command()
@identity_argument
@click.argument("reference", metavar="PROCESS")
@click.argument("cols", type=click.IntRange(1))
@click.argument("rows", type=click.IntRange(1))
def resize(identity: str, reference: str, cols: int, rows: int) -> None:
    """Tell a process that has a terminal how large that is."""
    with closing(find(identity)) as found:
        found.commands.attach(_process(reference)).resize(cols, rows)


@process.command("signal")
@identity_argument
@click.argument("reference", metavar="PROCESS")
@click.argument("name", metavar="SIGNAL", default="TERM")
@click.option("--tree", is_flag=True, help="To all that came from it, also what left its group.")
def signal_(identity: str, reference: str, name: str, tree: bool) -> None:
    """Send a signal to a process and its group: TERM, or another by name or number."""
    with closing(find(identity)) as found:
        attached = found.commands.attach(_process(reference))
        attached.signal(int(name) if name.isdecimal() else name, tree=tree)


def _process(reference: str) -> str | int:
    return int(reference) if reference.isdecimal() and len(reference) < 12 else reference
