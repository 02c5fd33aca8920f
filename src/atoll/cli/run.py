"""`atoll run`: Python code or a script in a fresh sandbox, with its output and exit code here."""

from __future__ import annotations

import sys
from pathlib import Path, PurePosixPath

import click

from atoll.cli.options import Seconds, creation_options, env_option
from atoll.cli.stream import follow, stdin_is_given
from atoll.client import Sandbox
from atoll.model.errors import AtollError

_INTERPRETERS = {".sh": "bash", ".js": "node", ".mjs": "node"}
_SPARE_S = 60  # the sandbox outlives its command, so that the command's own end is the one that is seen


@click.command()
@click.argument("code", metavar="CODE|FILE|-")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("--timeout", "timeout_s", type=Seconds(), default="300", show_default=True, help="For the code.")
@click.option("--keep", is_flag=True, help="Leave the sandbox running, and say its id.")
@env_option
@creation_options
def run(
    code: str,
    arguments: tuple[str, ...],
    timeout_s: float,
    keep: bool,
    env: tuple[tuple[str, str], ...],
    template: str,
    cpu: float | None,
    memory: str | None,
    disk: str | None,
) -> int:
    """Run Python code, or a file of this machine, in a fresh sandbox.

    \b
        atoll run 'print(6*7)'
        atoll run script.py --env A=1
        echo 'print(1)' | atoll run -
    """
    script = local_file(code)
    if code == "-":
        code, feed_stdin = sys.stdin.read(), False
    else:
        feed_stdin = stdin_is_given()
    sandbox = Sandbox.create(template, env=dict(env), cpu=cpu, memory=memory, disk=disk, timeout_s=timeout_s + _SPARE_S)
    try:
        argv = _placed(sandbox, script) if script is not None else ["python3", "-c", code]
        process = sandbox.commands.start([*argv, *arguments], timeout_s=timeout_s, stdin=feed_stdin)
        return follow(process, feed_stdin=feed_stdin)
    finally:
        _end(sandbox, keep)


def local_file(code: str) -> Path | None:
    """The file that is meant, if one is: code has line ends, brackets or blanks, and a file exists."""
    if "\n" in code or len(code) > 1000 or "\0" in code:
        return None
    path = Path(code)
    try:
        if path.is_file():
            return path
    except OSError:
        return None
    if path.suffix in {".py", *_INTERPRETERS} and not any(letter in code for letter in "( =;'\""):
        raise click.UsageError(f"there is no file {code!r}")
    return None


def _placed(sandbox: Sandbox, script: Path) -> list[str]:
    """Copy the script in; how to run it there."""
    target = PurePosixPath("/tmp") / script.name  # noqa: S108 - in the sandbox, which has one user
    sandbox.files.upload(script, str(target))
    return [_INTERPRETERS.get(script.suffix, "python3"), str(target)]


def _end(sandbox: Sandbox, keep: bool) -> None:
    if keep:
        click.echo(f"kept: {sandbox.id}", err=True)
        sandbox.close()
        return
    try:
        sandbox.kill()
    except AtollError as error:
        click.echo(f"warning: {sandbox.id} was not killed: {error.message}; its deadline will", err=True)
    finally:
        sandbox.close()
