"""What every command has in common: an error is one line, whoever it comes from."""

from __future__ import annotations

from pathlib import Path

import pytest

from atoll import __version__

from .conftest import Run


@pytest.fixture
def made(atoll: Run) -> str:
    return atoll("sandbox", "create").stdout.strip()


def test_what_this_machine_refuses_is_one_line(atoll: Run, made: str, tmp_path: Path) -> None:
    assert atoll("sandbox", "exec", made, "echo hi > f").returncode == 0
    (tmp_path / "d" / "f").mkdir(parents=True)
    for target, why in ((tmp_path / "d", "Is a directory"), (Path("/proc/f"), "No such file or directory")):
        refused = atoll("sandbox", "cp", f"{made}:f", str(target))
        assert (refused.returncode, refused.stdout) == (1, "")
        assert refused.stderr.startswith("error: ")
        assert refused.stderr.endswith(f"{why} (local_file)\n")
        assert refused.stderr.count("\n") == 1


def test_an_error_that_nobody_mapped_is_one_line_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A screen that is a full disk, for one."""
    from atoll.cli import main as program

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", "/mnt/f")

    monkeypatch.setattr(program.atoll, "main", full)
    with pytest.raises(SystemExit) as ended:
        program.main([])
    assert ended.value.code == 1
    assert capsys.readouterr().err == "error: /mnt/f: No space left on device (local_file)\n"


def test_a_mistyped_command_is_guessed(served: Run) -> None:
    refused = served("sandbx")
    assert refused.returncode == 2
    assert "No such command 'sandbx'. Did you mean 'sandbox'?" in refused.stderr


def test_the_version_is_told(served: Run) -> None:
    assert served("--version").stdout == f"atoll {__version__}\n"


def test_the_shell_completes_commands_and_sandboxes(served: Run) -> None:
    named = served("sandbox", "create", "--name", "tab").stdout.strip()
    unnamed = served("sandbox", "create").stdout.strip()

    def completed(words: str) -> list[str]:
        shell = {"COMP_WORDS": f"atoll {words}", "COMP_CWORD": str(words.count(" ") + 1)}
        said = served(_ATOLL_COMPLETE="bash_complete", **shell).stdout
        return [line.partition(",")[2] for line in said.splitlines() if line]

    assert completed("sa") == ["sandbox"]
    assert completed("--v") == ["--version"]
    assert completed("sandbox ex") == ["exec"]
    assert completed("sandbox exec ta") == ["tab"]
    assert completed(f"sandbox kill {named}") == [named]
    assert completed(f"shell {unnamed[:-2]}") == [unnamed]
    assert completed("sandbox exec zz") == []
    assert not served(
        _ATOLL_COMPLETE="bash_complete", COMP_WORDS="atoll shell ", COMP_CWORD="2", ATOLL_URL="x:/"
    ).stderr
