"""A template is current only if its manifest says so and its disk is there; an import is all or nothing."""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from atoll.model import limits
from atoll.model.errors import Internal
from atoll.node import spawn
from atoll.node.disks import btrfs
from atoll.node.disks.pool import Pool
from atoll.node.install import definitions, template_build
from atoll.node.install.layout import Layout

pytestmark = pytest.mark.real


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(cache=tmp_path / "cache", data=tmp_path / "data")


@pytest.fixture
def pool(layout: Layout) -> Iterator[Pool]:
    opened = Pool.open(layout.data, limits.POOL_BYTES_MIN)
    yield opened
    opened.remove()


@pytest.fixture
def archive(layout: Layout, tmp_path: Path) -> Path:
    """A small root filesystem in the place of the template busybox, so that nothing has to be fetched."""
    root = tmp_path / "root"
    (root / "bin").mkdir(parents=True)
    (root / "bin/program").write_text("x")
    os.chmod(root / "bin/program", 0o4755)
    os.chown(root / "bin", 1000, 1000)
    path = layout.template_archive("busybox")
    path.parent.mkdir(parents=True)
    with tarfile.open(tmp_path / "root.tar", "w") as tar:
        tar.add(root, ".")
    spawn.run(["zstd", "--quiet", tmp_path / "root.tar", "-o", path])
    return path


def test_an_import_is_complete_and_done_once(layout: Layout, pool: Pool, archive: Path) -> None:
    said: list[str] = []
    assert not template_build.is_current("busybox", layout, pool)
    template_build.ensure("busybox", layout, pool, said.append)
    template = pool.template_path("busybox")
    assert btrfs.is_read_only(template)
    assert (template / "bin/program").stat().st_mode & 0o7777 == 0o4755
    assert (template / "bin").stat().st_uid == 1000
    manifest = json.loads((pool.root / "templates/busybox.json").read_text())
    assert manifest["user"] == "user"
    assert manifest["key"] == definitions.template_key("busybox", layout.machine)
    archive.unlink()
    template_build.ensure("busybox", layout, pool, said.append)
    assert said[-1] == "template busybox: ready"
    assert sorted(os.listdir(pool.root / "templates")) == ["busybox", "busybox.json"]


def test_an_interrupted_or_outdated_import_is_replaced(layout: Layout, pool: Pool, archive: Path) -> None:
    templates = pool.root / "templates"
    for name in ("busybox", ".tmp-busybox", ".old-busybox"):
        btrfs.subvolume_create(templates / name)
    btrfs.read_only_set(templates / "busybox", True)
    (templates / "busybox.json").write_text('{"key": "of another version"}')
    template_build.ensure("busybox", layout, pool, lambda _: None)
    assert (templates / "busybox/bin/program").exists()
    assert sorted(os.listdir(templates)) == ["busybox", "busybox.json"]


def test_a_damaged_archive_leaves_no_template(layout: Layout, pool: Pool, archive: Path) -> None:
    archive.write_bytes(archive.read_bytes()[:-20])
    with pytest.raises(Internal):
        template_build.ensure("busybox", layout, pool, lambda _: None)
    assert not template_build.is_current("busybox", layout, pool)
    assert not (pool.root / "templates/busybox").exists()
