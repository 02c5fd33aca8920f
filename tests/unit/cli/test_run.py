"""`atoll run`: what is a file and what is code, and how code gets its arguments."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from atoll.cli.run import local_file, with_arguments


def test_what_is_a_file_and_what_is_code(tmp_path: Path) -> None:
    script = tmp_path / "a script.py"
    script.write_text("print(1)")
    assert local_file(str(script)) == script
    assert local_file("print(6*7)") is None
    assert local_file("x=1\ny=2") is None
    assert local_file("a" * 5000) is None
    with pytest.raises(click.UsageError):
        local_file("missing.py")


def test_arguments_go_where_the_language_has_them() -> None:
    assert with_arguments("x", "python", "", ()) == "x"
    made = with_arguments("import sys\nfound = sys.argv", "python", "a.py", ("it's", "b"))
    found: dict[str, object] = {}
    exec(made, found)
    assert found["found"] == ["a.py", "it's", "b"]
    assert with_arguments("echo $1", "bash", "", ("a b",)) == "set -- 'a b'\necho $1"
    with pytest.raises(click.UsageError):
        with_arguments("1", "java", "", ("a",))
