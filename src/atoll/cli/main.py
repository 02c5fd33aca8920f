"""The `atoll` command: a table of commands, each imported when it is run, so that `--help` costs nothing."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from typing import Any

import click
from click.exceptions import NoSuchCommand
from click.shell_completion import CompletionItem

from atoll import __version__

# name -> (module:object, the line that --help shows without importing it)
COMMANDS: Mapping[str, tuple[str, str]] = {
    "serve": ("atoll.cli.server:serve", "Run the server (needs root)."),
    "setup": ("atoll.cli.setup:setup", "Prepare this machine: runtime, disk pool, templates (needs root)."),
    "run": ("atoll.cli.run:run", "Run Python code or a script in a fresh sandbox."),
    "sandbox": ("atoll.cli.sandbox:sandbox", "Create, list, use and kill sandboxes."),
    "snapshot": ("atoll.cli.snapshot:snapshot", "List, look at and delete snapshots."),
    "volume": ("atoll.cli.volume:volume", "Make, fill, list and delete disks that outlive sandboxes."),
    "shell": ("atoll.cli.shell:shell", "Open a terminal in a sandbox."),
    "process": ("atoll.cli.process:process", "Start, list, read, feed and signal processes in a sandbox."),
    "file": ("atoll.cli.file:file", "Read, write, search, watch and change the files of a sandbox."),
    "git": ("atoll.cli.git:git", "Work on git repositories in a sandbox."),
    "port": ("atoll.cli.port:port", "Show and change who may reach the servers inside a sandbox."),
    "forward": ("atoll.cli.forward:forward", "Make a port of a sandbox a port of this machine."),
    "env": ("atoll.cli.env:env", "Print the variables that send another vendor's SDK here."),
    "ca": ("atoll.cli.ca:ca", "Show and install the CA of a server with TLS."),
    "policy": ("atoll.cli.policy:policy", "Show and change what a sandbox may reach."),
    "secret": ("atoll.cli.secret:secret", "Keep secrets that sandboxes use without holding them."),
    "status": ("atoll.cli.status:status", "Show how the server is."),
    "usage": ("atoll.cli.usage:usage", "Sum up what has been used, and what it costs."),
    "events": ("atoll.cli.events:events", "Show who did what; the audit log."),
    "webhook": ("atoll.cli.events:webhook", "Have events posted to an address."),
    "key": ("atoll.cli.key:key", "Make, list and revoke API keys."),
    "tenant": ("atoll.cli.tenant:tenant", "Manage who shares the server, and what they may have."),
    "backup": ("atoll.cli.backup:backup", "Write the server's record to a file, while it runs (needs root)."),
    "restore": ("atoll.cli.backup:restore", "Put a server's record back (needs root)."),
    "template": ("atoll.cli.template:template", "Show what sandboxes can be created from."),
    "doctor": ("atoll.cli.doctor:doctor", "Show what this machine can do, and what is wrong with it (needs root)."),
}


class LazyGroup(click.Group):
    """A group that knows the names and one line of its commands, and imports the one that is run."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module_name, _, attribute = entry[0].partition(":")
        command = getattr(importlib.import_module(module_name), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] in COMMANDS or args[0].startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        raise NoSuchCommand(args[0], possibilities=COMMANDS, ctx=ctx)  # click would look among those that it imported

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """From the table: to import every command for their names takes as long as a person notices."""
        found = [CompletionItem(name, help=line) for name, (_, line) in COMMANDS.items() if name.startswith(incomplete)]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__, "--version", "-V", prog_name="atoll", message="%(prog)s %(version)s")
def atoll() -> None:
    """Isolated Linux computers for agents, on your own machine.

    Settings come from flags, then ATOLL_* variables. ATOLL_URL and ATOLL_API_KEY choose a server; without them the
    server of this machine is used.
    """


def main(arguments: list[str] | None = None) -> None:
    """The entry point. Every error that Atoll reports on purpose is one line and a hint; none is a traceback."""
    sys.exit(_run(arguments))


def _run(arguments: list[str] | None) -> int:
    from atoll.model.errors import AtollError

    try:
        answer: Any = atoll.main(arguments, prog_name="atoll", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 130  # what a shell says of a program that was interrupted
    except AtollError as error:
        from atoll.cli.output import complain

        complain(error)
        return 1
    except BrokenPipeError:
        # The reader of our output (`| head`) has gone. Nothing may be written any more, not even at exit.
        sys.stdout = None
        return 1
    except OSError as error:
        from atoll.cli.output import complain
        from atoll.model.errors import InvalidArgument

        named = f"{error.filename}: " if isinstance(error.filename, str) else ""
        complain(InvalidArgument(f"{named}{error.strerror or error}", code="local_file"))
        return 1
    return answer if isinstance(answer, int) else 0
