"""`atoll git`: git in a sandbox, in one call each; passwords are used and kept nowhere."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click
import msgspec

from atoll.cli.identity import identity_argument
from atoll.cli.options import Seconds
from atoll.cli.output import json_option, print_json, print_table, printable
from atoll.cli.place import Place, opened, place_argument, user_option
from atoll.cli.stream import to_standard_output
from atoll.client import Sandbox
from atoll.wire.public import GitDone

Command = TypeVar("Command", bound=Callable[..., Any])


@click.group()
def git() -> None:
    """Work on git repositories in a sandbox. A PLACE is ID:PATH, the folder of a repository."""


def _access_options(command: Command) -> Command:
    """What opens a remote, and for how long to try."""
    options = [
        click.option("--username", help="For a remote that asks."),
        click.option("--password-stdin", is_flag=True, help="Read the password, or token, from standard input."),
        click.option("--timeout", "timeout_s", type=Seconds(), default="10m", show_default=True),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def _password(given: bool) -> str | None:
    return sys.stdin.readline().rstrip("\r\n") if given else None


def _done(answer: GitDone) -> None:
    """What git said, and where the repository stands now."""
    for line in answer.output.splitlines():
        click.echo(printable(line))
    commit = (answer.commit or "no commit")[:12]
    click.echo(f"{printable(answer.path)}: {printable(answer.branch or 'no branch')}, {commit}", err=True)


@git.command()
@identity_argument
@click.argument("url")
@click.argument("path", required=False)
@click.option("--branch", "-b", help="This one, and not the remote's usual one.")
@click.option("--depth", type=click.IntRange(1), help="Only so many commits.")
@_access_options
@user_option
def clone(
    identity: str,
    url: str,
    path: str | None,
    branch: str | None,
    depth: int | None,
    username: str | None,
    password_stdin: bool,
    timeout_s: float,
    user: str | None,
) -> None:
    """Clone a repository.

    \b
        atoll git clone ID https://example.org/a.git --depth 1
        atoll git clone ID https://example.org/a.git --username me --password-stdin < token
    """
    password = _password(password_stdin)
    with opened(Place(identity, path or ".")) as found:
        _done(
            found.git.clone(
                url,
                path,
                branch=branch,
                depth=depth,
                username=username,
                password=password,
                user=user,
                timeout_s=timeout_s,
            )
        )


@git.command()
@place_argument
@user_option
@json_option
def status(place: Place, user: str | None, as_json: bool) -> None:
    """Show the branch, how far it is from its upstream, and which files have changed."""
    with opened(place) as found:
        answer = found.git.status(place.path, user=user)
    if as_json:
        print_json(msgspec.to_builtins(answer))
        return
    upstream = f", {answer.ahead} ahead of and {answer.behind} behind {answer.upstream}" if answer.upstream else ""
    click.echo(f"{printable(answer.branch or 'no branch')}, {(answer.commit or 'no commit')[:12]}{printable(upstream)}")
    for file in answer.files:
        source = f"{printable(file.source)} -> " if file.source else ""
        click.echo(f"{file.staged or ' '}{file.unstaged or ' '} {source}{printable(file.path)}")


@git.command()
@place_argument
@click.argument("files", metavar="[FILE]...", nargs=-1)
@user_option
def add(place: Place, files: tuple[str, ...], user: str | None) -> None:
    """Stage files; without names, all that has changed."""
    with opened(place) as found:
        _done(found.git.add(place.path, list(files), user=user))


@git.command()
@place_argument
@click.option("--message", "-m", required=True)
@click.option("--author-name")
@click.option("--author-email")
@click.option("--all", "-a", "every", is_flag=True, help="Also changes of files that git knows.")
@click.option("--allow-empty", is_flag=True)
@user_option
def commit(
    place: Place,
    message: str,
    author_name: str | None,
    author_email: str | None,
    every: bool,
    allow_empty: bool,
    user: str | None,
) -> None:
    """Commit what is staged."""
    with opened(place) as found:
        _done(
            found.git.commit(
                place.path,
                message,
                author_name=author_name,
                author_email=author_email,
                all=every,
                allow_empty=allow_empty,
                user=user,
            )
        )


@git.command()
@place_argument
@click.argument("name", required=False)
@click.option("--start", metavar="COMMIT", help="Where it begins.")
@click.option("--delete", "-d", is_flag=True, help="Delete it.")
@user_option
@json_option
def branch(place: Place, name: str | None, start: str | None, delete: bool, user: str | None, as_json: bool) -> None:
    """List the local branches; with NAME, make one or delete it."""
    if name is None and (start or delete):
        raise click.UsageError("name the branch")
    with opened(place) as found:
        if name is not None:
            _done(found.git.branch(place.path, name, start=start, delete=delete, user=user))
            return
        _branches(found, place.path, user, as_json)


def _branches(sandbox: Sandbox, path: str, user: str | None, as_json: bool) -> None:
    branches = sandbox.git.branches(path, user=user)
    if as_json:
        print_json(msgspec.to_builtins(branches))
        return
    rows = [("*" if one.current else "", one.name, one.commit[:12], one.upstream or "") for one in branches]
    print_table(("", "NAME", "COMMIT", "UPSTREAM"), rows)


@git.command()
@place_argument
@click.argument("target")
@click.option("--create", "-b", is_flag=True, help="TARGET is a new branch.")
@user_option
def checkout(place: Place, target: str, create: bool, user: str | None) -> None:
    """Go to a branch or a commit."""
    with opened(place) as found:
        _done(found.git.checkout(place.path, target, create=create, user=user))


def _remote_options(command: Command) -> Command:
    remote = click.option("--remote", default="origin", show_default=True)
    branch = click.option("--branch", "-b", help="This one, and not the current one.")
    return remote(branch(_access_options(user_option(command))))


@git.command()
@place_argument
@_remote_options
def pull(
    place: Place,
    remote: str,
    branch: str | None,
    username: str | None,
    password_stdin: bool,
    timeout_s: float,
    user: str | None,
) -> None:
    """Pull from a remote."""
    password = _password(password_stdin)
    with opened(place) as found:
        _done(
            found.git.pull(
                place.path,
                remote=remote,
                branch=branch,
                username=username,
                password=password,
                user=user,
                timeout_s=timeout_s,
            )
        )


@git.command()
@place_argument
@click.option("--set-upstream", is_flag=True, help="The branch follows the remote's from now on.")
@click.option("--force", "-f", is_flag=True, help="Also where it throws the remote's commits away.")
@_remote_options
def push(
    place: Place,
    set_upstream: bool,
    force: bool,
    remote: str,
    branch: str | None,
    username: str | None,
    password_stdin: bool,
    timeout_s: float,
    user: str | None,
) -> None:
    """Push to a remote."""
    password = _password(password_stdin)
    with opened(place) as found:
        _done(
            found.git.push(
                place.path,
                remote=remote,
                branch=branch,
                username=username,
                password=password,
                set_upstream=set_upstream,
                force=force,
                user=user,
                timeout_s=timeout_s,
            )
        )


@git.command()
@place_argument
@click.option("--count", "-n", type=click.IntRange(1), default=30, show_default=True)
@click.option("--revision", help="From this branch or commit on.")
@user_option
@json_option
def log(place: Place, count: int, revision: str | None, user: str | None, as_json: bool) -> None:
    """Show the newest commits, newest first."""
    with opened(place) as found:
        commits = found.git.log(place.path, count=count, revision=revision, user=user)
    if as_json:
        print_json(msgspec.to_builtins(commits))
        return
    rows = [
        (one.commit[:12], f"{one.at:%Y-%m-%d %H:%M}", one.author_name, one.message.partition("\n")[0])
        for one in commits
    ]
    print_table(("COMMIT", "AT", "AUTHOR", "MESSAGE"), rows)


@git.command()
@place_argument
@click.argument("files", metavar="[FILE]...", nargs=-1)
@click.option("--staged", is_flag=True, help="What is staged, not what is not.")
@click.option("--base", metavar="COMMIT", help="All since this commit.")
@user_option
def diff(place: Place, files: tuple[str, ...], staged: bool, base: str | None, user: str | None) -> None:
    """Print changes as a patch."""
    with opened(place) as found:
        answer = found.git.diff(place.path, list(files) or None, staged=staged, base=base, user=user)
    to_standard_output([answer.text.encode("utf-8", "surrogateescape")])
    if answer.truncated:
        click.echo("there is more", err=True)
