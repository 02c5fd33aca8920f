"""`atoll run`: code or a script in a fresh sandbox, with its output, results, pictures and exit code here."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

import click

from atoll.cli.options import Seconds, creation_options, env_option, network_options
from atoll.cli.output import printable
from atoll.cli.stream import stdin_is_given
from atoll.client import (
    CodeRun,
    Execution,
    ExecutionError,
    ExecutionOutput,
    ExecutionResult,
    Sandbox,
    evaluate,
    pictures,
)
from atoll.model.errors import AtollError

_LANGUAGES = {".py": "python", ".sh": "bash", ".js": "javascript", ".mjs": "javascript", ".ts": "typescript"}
_LANGUAGES |= {".r": "r", ".java": "java", ".jsh": "java"}
_SPARE_S = 60  # the sandbox outlives its code, so that the code's own end is the one that is seen


@click.command()
@click.argument("code", metavar="CODE|FILE|-")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("--language", "-l", help="python, javascript, typescript, bash, r, java or a kernel of the template.")
@click.option("--timeout", "timeout_s", type=Seconds(), default="300", show_default=True, help="For the code.")
@click.option("--rm", is_flag=True, help="In one call: a sandbox that is never seen, and output when all is done.")
@click.option("--save", type=click.Path(file_okay=False, path_type=Path), help="Directory for pictures; default: here.")
@click.option("--keep", is_flag=True, help="Leave the sandbox running, and say its id.")
@env_option
@network_options
@creation_options
def run(
    code: str,
    arguments: tuple[str, ...],
    language: str | None,
    timeout_s: float,
    rm: bool,
    save: Path | None,
    keep: bool,
    env: tuple[tuple[str, str], ...],
    policy: dict[str, Any] | None,
    secrets: tuple[str, ...],
    template: str,
    cpu: float | None,
    memory: str | None,
    disk: str | None,
) -> int:
    """Run code, or a file of this machine, in a fresh sandbox.

    What is piped in is what the code reads. Arguments are in sys.argv of Python, and $1... of bash.

    \b
        atoll run 'print(6*7)'
        atoll run script.py --env A=1
        echo 'print(1)' | atoll run -
        atoll run --rm -l bash 'uname -a'
        atoll run fetch.py --allow api.example.org --secret API_TOKEN
    """
    script = local_file(code)
    language = language or (_LANGUAGES.get(script.suffix.lower(), "python") if script else "python")
    stdin = sys.stdin.read() if code == "-" or stdin_is_given() else None
    if code == "-":
        code, stdin = stdin or "", None
    text = with_arguments(script.read_text() if script else code, language, script.name if script else "", arguments)
    shown = Shown(save or Path())
    if rm:
        if keep or disk or policy is not None or secrets:
            raise click.UsageError("--rm does not go with --keep, --disk, --allow, --policy or --secret")
        done = evaluate(
            text,
            language=language,
            stdin=stdin,
            env=dict(env),
            timeout_s=timeout_s,
            memory=memory,
            cpu=cpu,
            template=template,
        )
        shown.output("stdout", done.stdout)
        shown.output("stderr", done.stderr)
        for result in done.results:
            shown.result(result)
        return shown.end(done.error, done.status, done.exit_code)
    sandbox = Sandbox.create(
        template,
        env=dict(env),
        policy=policy,
        secrets=secrets,
        cpu=cpu,
        memory=memory,
        disk=disk,
        timeout_s=timeout_s + _SPARE_S,
    )
    try:
        running = sandbox.code.start(text, language=language, timeout_s=timeout_s, stdin=stdin)
        ended = follow(running, shown)
        return shown.end(ended.error, ended.status, ended.exit_code or 0)
    finally:
        _end(sandbox, keep)


def with_arguments(code: str, language: str, name: str, arguments: tuple[str, ...]) -> str:
    """The code as if it had been started with these arguments."""
    if language == "python" and (arguments or name):
        # On one line before the code, so that line numbers of a traceback are one off and no more.
        return f"import sys as _; _.argv = {[name, *arguments]!r}; del _\n{code}"
    if not arguments:
        return code
    if language == "bash":
        import shlex

        return f"set -- {shlex.join(arguments)}\n{code}"
    raise click.UsageError(f"{language} code takes no arguments here; give it standard input or --env")


def follow(running: CodeRun, shown: Shown) -> Execution:
    """Show what comes, until the end; the first Ctrl-C interrupts the code, the second gives up."""
    interrupts = 0
    while True:
        try:
            for event in running:
                if isinstance(event, ExecutionOutput):
                    shown.output(event.stream, event.text)
                elif isinstance(event, ExecutionResult):
                    shown.result(event)
            return running.execution
        except KeyboardInterrupt:
            interrupts += 1
            if interrupts > 1:
                raise
            with contextlib.suppress(AtollError):  # it may have ended in this very moment
                running.interrupt()


class Shown:
    """What a person sees: text as it is, pictures as files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = 0

    def output(self, stream: str, text: str) -> None:
        target = sys.stdout if stream == "stdout" else sys.stderr
        target.buffer.write(text.encode("utf-8", "replace"))
        target.buffer.flush()

    def result(self, result: ExecutionResult) -> None:
        found = pictures(result)
        for kind, data in found[:1]:
            self._number += 1
            self._folder.mkdir(parents=True, exist_ok=True)
            path = self._folder / f"atoll-{self._number}.{kind}"
            path.write_bytes(data)
            click.echo(f"saved {printable(str(path))} ({len(data)} bytes)", err=True)
        if not found and (text := result.markdown or result.text or result.html):
            self.output("stdout", text + "\n")

    def end(self, error: ExecutionError | None, status: str, exit_code: int) -> int:
        if status == "timed_out":
            click.echo("atoll: interrupted at its time limit", err=True)
            return 124
        if error is not None and error.name == "SystemExit":
            return exit_code
        if error is not None and error.name != "ExitStatus":
            self.output("stderr", (error.traceback or f"{error.name}: {error.value}").rstrip() + "\n")
        return exit_code & 0xFF


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
    if path.suffix.lower() in _LANGUAGES and not any(letter in code for letter in "( =;'\""):
        raise click.UsageError(f"there is no file {code!r}")
    return None


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
