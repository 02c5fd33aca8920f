"""The generated pages say what the code says, and no variable is left out."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "tools" / "tables.py"


def test_the_tables_say_what_the_code_says() -> None:
    done = subprocess.run([sys.executable, TOOL, "--check"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_stale_table_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("tables", TOOL)
    assert spec is not None
    assert spec.loader is not None
    tables = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "tables", tables)  # where its dataclasses look for themselves
    spec.loader.exec_module(tables)
    monkeypatch.setattr(tables, "DOCS", tmp_path)
    monkeypatch.setattr(tables, "ROOT", tmp_path)
    assert tables.main(["--check"]) == 1
    assert tables.main([]) == 0
    assert tables.main(["--check"]) == 0
    (tmp_path / "errors.md").write_text((tmp_path / "errors.md").read_text() + "\n")
    assert tables.main(["--check"]) == 1


def test_every_variable_is_in_the_settings_page() -> None:
    page = (ROOT / "docs" / "settings.md").read_text()
    for path in (ROOT / "src").rglob("*.py"):
        for name in re.findall(r"\bATOLL_[A-Z][A-Z_]*[A-Z]\b", path.read_text()):
            assert f"`{name}`" in page, f"{path} reads {name}, which is in no table"
