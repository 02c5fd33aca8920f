"""What a disk that is exported may hold in the server's memory meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from atoll.model import limits
from atoll.model.errors import TooLarge
from atoll.node.snapshotfile.items import Head
from atoll.node.snapshotfile.pack import packed


def test_a_folder_of_endless_names_is_refused_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(10):
        (tmp_path / f"file-{number}").touch()
    head = Head("base", 1.0, 2**30, 2**30, 100, "x86_64", "runsc 1", "cpu")
    assert list(packed(head, tmp_path, tmp_path))
    monkeypatch.setattr(limits, "FOLDER_NAMES_BYTES_MAX", 9 * (64 + len("file-0")))
    with pytest.raises(TooLarge) as refused:
        list(packed(head, tmp_path, tmp_path))
    assert refused.value.code == "snapshot_too_large"
