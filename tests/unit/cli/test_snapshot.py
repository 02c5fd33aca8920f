"""`atoll snapshot`, against the whole server on a node without a machine."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from .conftest import Run


@pytest.mark.parametrize(("expires", "seconds"), [("1h", 3600), ("90", 90)])
def test_an_import_expires_when_it_is_told_to(served: Run, tmp_path: Path, expires: str, seconds: int) -> None:
    file = tmp_path / "snapshot"
    file.write_text("fake snapshot\nbase 0 1073741824\n")
    done = served("snapshot", "import", str(file), "--expires", expires, "--json")
    assert done.returncode == 0, done.stderr
    expires_at = datetime.fromisoformat(json.loads(done.stdout)["expires_at"])
    assert seconds - 60 < (expires_at - datetime.now(UTC)).total_seconds() <= seconds
