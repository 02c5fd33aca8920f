"""What doctor makes of what it sees on the host."""

from __future__ import annotations

from pathlib import Path

import pytest

from atoll.node.doctor import memory_merging


@pytest.mark.parametrize(
    ("runs", "shared", "status"), [(0, 0, "ok"), (2, 0, "ok"), (1, 0, "fail"), (1, 9, "fail"), (0, 9, "fail")]
)
def test_memory_that_the_kernel_merges_is_found(tmp_path: Path, runs: int, shared: int, status: str) -> None:
    """While it goes on, and also afterwards, as long as pages are one that were two."""
    (tmp_path / "run").write_text(f"{runs}\n")
    (tmp_path / "pages_shared").write_text(f"{shared}\n")
    found = memory_merging(tmp_path)
    assert found.status == status
    assert (f"echo 2 > {tmp_path}/run" in found.hint) == (status == "fail")


def test_a_kernel_that_cannot_merge_is_fine(tmp_path: Path) -> None:
    assert memory_merging(tmp_path / "none").status == "ok"
