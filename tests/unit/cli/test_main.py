"""What every command has in common: an error is one line, whoever it comes from."""

from __future__ import annotations

from pathlib import Path

import pytest

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
