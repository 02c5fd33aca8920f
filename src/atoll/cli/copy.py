"""`atoll sandbox cp`: files and folders into a sandbox and out of it, with their progress on a terminal."""

from __future__ import annotations

import posixpath
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from atoll.cli.find import find
from atoll.cli.output import amount, printable
from atoll.cli.place import parse_place
from atoll.client import Sandbox
from atoll.model.errors import InvalidArgument, NotFound

SHOW_EVERY_S = 0.1  # a line that changes faster cannot be read


@click.command()
@click.argument("source", metavar="SOURCE")
@click.argument("target", metavar="TARGET")
@click.option("--user", "-u", help="The user whose rights are used in the sandbox.")
@click.option("--quiet", "-q", is_flag=True, help="No progress.")
def cp(source: str, target: str, user: str | None, quiet: bool) -> None:
    """Copy a file or a folder into a sandbox or out of it.

    One of SOURCE and TARGET is ID:PATH; a path that is not absolute starts at the user's home. A TARGET that is a
    folder gets the copy inside it, as with cp -r.

    \b
        atoll sandbox cp data.csv my-sandbox:/home/user/
        atoll sandbox cp my-sandbox:results ./results
    """
    here, there = parse_place(source), parse_place(target)
    if bool(here.sandbox) == bool(there.sandbox):
        raise click.UsageError("one of SOURCE and TARGET must be ID:PATH, and the other a path of this machine")
    found = find(here.sandbox or there.sandbox)
    try:
        with progress(quiet) as tell:
            if there.sandbox:
                skipped = copy_in(found, Path(here.path), there.path, user, tell)
            else:
                skipped = copy_out(found, here.path, there.path, user, tell)
    finally:
        found.close()
    for name in skipped:
        click.echo(f"left out: {printable(name)}", err=True)


Tell = Callable[[int, int | None], None]


def copy_in(sandbox: Sandbox, source: Path, target: str, user: str | None, tell: Tell) -> tuple[str, ...]:
    if target.endswith("/") or _is_folder(sandbox, target, user):
        target = posixpath.join(target, source.resolve().name)
    if source.is_dir():
        return sandbox.files.push(source, target, user=user, on_progress=tell).skipped
    mode = _mode(source)
    sandbox.files.upload(source, target, mode=mode, user=user, on_progress=tell)
    return ()


def copy_out(sandbox: Sandbox, source: str, target: str, user: str | None, tell: Tell) -> tuple[str, ...]:
    found = sandbox.files.stat(source, follow=True, user=user)
    local = Path(target)
    if target.endswith("/") or local.is_dir():
        name = posixpath.basename(found.path.rstrip("/"))
        if name in ("", ".", ".."):
            raise InvalidArgument("name the folder that it shall become", code="local_file")
        local = local / name
    local.parent.mkdir(parents=True, exist_ok=True)
    if found.type == "directory":
        return sandbox.files.pull(source, local, user=user, on_progress=tell).skipped
    sandbox.files.download(source, local, user=user, on_progress=tell)
    if found.mode & 0o100:
        local.chmod(local.stat().st_mode | 0o111)
    return ()


def _mode(source: Path) -> int | None:
    """The rights go with a file; one that cannot be asked is left to the upload, which says why."""
    try:
        return source.stat().st_mode & 0o777
    except OSError:
        return None


def _is_folder(sandbox: Sandbox, path: str, user: str | None) -> bool:
    try:
        return sandbox.files.stat(path, follow=True, user=user).type == "directory"
    except NotFound as error:
        if error.code != "not_found":
            raise
        return False


@contextmanager
def progress(quiet: bool) -> Iterator[Tell]:
    """A line on a terminal that says how far it has come; nothing where nobody looks."""
    if quiet or not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    line = Line()
    try:
        yield line.tell
    finally:
        line.end()


class Line:
    """One line that is written over itself."""

    def __init__(self) -> None:
        self._started_s = time.monotonic()
        self._shown_s = 0.0
        self._last: tuple[int, int | None] = (0, None)

    def tell(self, done: int, total: int | None) -> None:
        self._last = (done, total)
        now_s = time.monotonic()
        if now_s - self._shown_s >= SHOW_EVERY_S:
            self._shown_s = now_s
            self._show()

    def _show(self) -> None:
        sys.stderr.write("\r\x1b[K" + progress_text(*self._last, time.monotonic() - self._started_s))
        sys.stderr.flush()

    def end(self) -> None:
        self._show()
        sys.stderr.write("\n")


def progress_text(done: int, total: int | None, elapsed_s: float) -> str:
    """How much of how much, and how fast."""
    speed = f"{amount(int(done / elapsed_s))}/s" if elapsed_s > 0 else "-"
    if not total:
        return f"{amount(done)}  {speed}"
    return f"{amount(done)} of {amount(total)} ({min(100, done * 100 // total)}%)  {speed}"
