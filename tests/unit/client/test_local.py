"""Files of this machine: what it refuses is one typed error, and nothing half written stays behind."""

from __future__ import annotations

import os
import resource
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from atoll.client._local import LocalTarget, open_source
from atoll.client._progress import Meter
from atoll.client._tree import TreeTarget
from atoll.model.errors import InvalidArgument


@contextmanager
def refused(text: str) -> Iterator[None]:
    with pytest.raises(InvalidArgument) as caught:
        yield
    assert caught.value.code == "local_file"
    assert text in caught.value.message


@pytest.fixture
def no_room() -> Iterator[None]:
    """As a full disk: the kernel takes the first bytes of a file and refuses the rest."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_folder_stands_where_the_file_shall_be(tmp_path: Path) -> None:
    """Known before the first byte is asked for, and just as well if the folder came meanwhile."""
    (tmp_path / "d").mkdir()
    with refused(f"{tmp_path}/d: Is a directory"):
        LocalTarget(tmp_path / "d", None)
    with refused(f"{tmp_path}/late: Is a directory"), LocalTarget(tmp_path / "late", None) as target:
        target.write(b"x")
        (tmp_path / "late").mkdir()
    assert sorted(os.listdir(tmp_path)) == ["d", "late"]


@pytest.mark.parametrize("size", [200_000, 100_001])
def test_a_disk_is_full(tmp_path: Path, no_room: None, size: int) -> None:
    """Told while it is written, or when the last of it is."""
    with refused(f"{tmp_path}/f: "), LocalTarget(tmp_path / "f", None) as target:
        target.write(bytes(size - 1))
        target.write(b"x")
    assert os.listdir(tmp_path) == []


def test_a_disk_is_full_for_a_folder(tmp_path: Path, no_room: None) -> None:
    info = tarfile.TarInfo("f")
    info.size = 300_000
    with refused(f"{tmp_path}: "), TreeTarget(tmp_path, None, Meter(None, None)) as target:
        target.write(info.tobuf() + bytes(300_000))
    assert os.listdir(tmp_path) == []


def test_no_such_place(tmp_path: Path) -> None:
    with refused(f"{tmp_path}/nowhere: No such file"):
        LocalTarget(tmp_path / "nowhere" / "f", None)
    with refused(f"{tmp_path}/missing: No such file"), open_source(tmp_path / "missing"):
        pass
