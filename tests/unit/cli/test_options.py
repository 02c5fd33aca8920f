"""How the words of a command line are told apart."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from atoll.cli.options import Inside


@click.command(cls=Inside)
@click.argument("identity", metavar="ID")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option("--user", "-u")
@click.option("--quiet", is_flag=True)
def inside(identity: str, command: tuple[str, ...], user: str | None, quiet: bool) -> None:
    print(repr((identity, list(command), user, quiet)))


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        (["ID"], ("ID", [], None, False)),
        (["-u", "root", "ID"], ("ID", [], "root", False)),
        (["ID", "-u", "root"], ("ID", [], "root", False)),
        (["--quiet", "ID", "--user=root", "ls", "-la"], ("ID", ["ls", "-la"], "root", True)),
        (["ID", "ls", "-u", "root"], ("ID", ["ls", "-u", "root"], None, False)),
        (["ID", "--", "-u", "root"], ("ID", ["--", "-u", "root"], None, False)),
        (["ID", "-u", "root", "--", "ls", "--quiet"], ("ID", ["ls", "--quiet"], "root", False)),
        (["ID", "ls", "--", "x"], ("ID", ["ls", "--", "x"], None, False)),
        (["ID", "ls", "ID"], ("ID", ["ls", "ID"], None, False)),
    ],
)
def test_options_stand_before_or_after_the_id_and_never_behind_the_command(line: list[str], meant: object) -> None:
    answer = CliRunner().invoke(inside, line)
    assert answer.output == f"{meant!r}\n"


@pytest.mark.parametrize(
    ("line", "words"),
    [([], "Missing argument 'ID'"), (["--quiet"], "Missing argument 'ID'"), (["ID", "--user"], "requires an argument")],
)
def test_what_is_missing_is_said(line: list[str], words: str) -> None:
    answer = CliRunner().invoke(inside, line)
    assert answer.exit_code == 2
    assert words in answer.output
