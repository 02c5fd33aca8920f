"""An image exists when its manifest does, and is used only while it is what was written."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from atoll.model.errors import Conflict, NotFound
from atoll.node.disks import btrfs
from atoll.node.disks.pool import Pool
from atoll.node.hashing import file_hash, file_hashes
from atoll.node.images import Boot, Image, Images, cpu_features
from atoll.node.names import HostNames

pytestmark = pytest.mark.real


@pytest.fixture
def images(data_dir: Path) -> Images:
    return Images(HostNames.of(data_dir), Pool.open(data_dir))


def make(images: Images, image_id: str = "one", *, passing: bool = False) -> Image:
    folder = images.begin(image_id)
    (folder / "pages.img").write_bytes(b"p" * 3_000_000)
    (folder / "checkpoint.img").write_bytes(b"c" * 1000)
    source = images.disk_path(image_id).parent.parent / "sandboxes" / image_id
    btrfs.subvolume_create(source)
    images.disk_take(image_id, source)
    image = Image(image_id, Boot("h", "/a", "/r"), "token", "runsc", cpu_features(), file_hashes(folder))
    images.finish(image, passing=passing)
    return image


def test_an_image_comes_back_as_it_was(images: Images) -> None:
    image = make(images)
    assert images.known() == ["one"]
    assert images.find("one") == image
    images.verify(image)
    images.remove("one")
    images.remove("one")
    assert images.known() == []
    with pytest.raises(NotFound):
        images.find("one")


def test_one_flipped_byte_is_noticed(images: Images) -> None:
    image = make(images)
    with open(images.memory_path("one") / "pages.img", "r+b") as file:
        file.seek(2_000_000)
        file.write(b"x")
    with pytest.raises(Conflict) as caught:
        images.verify(image)
    assert caught.value.code == "image_damaged"


def test_many_who_ask_at_once_look_once(images: Images, monkeypatch: pytest.MonkeyPatch) -> None:
    image = make(images)
    looked: list[str] = []

    def look(path: Path) -> str:
        looked.append(path.name)
        return file_hash(path)

    monkeypatch.setattr("atoll.node.images.file_hash", look)
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(images.verify, [image] * 8))
    assert sorted(looked) == sorted(image.files)


def test_a_passing_image_is_there_at_once(images: Images) -> None:
    image = make(images, "passing", passing=True)
    assert images.find("passing") == image
    images.verify(image)
    images.remove("passing")
    assert images.known() == []


@pytest.mark.parametrize("damage", ["", "[]", "{}", '{"boot": 1}', "{"])
def test_a_damaged_manifest_is_refused(images: Images, damage: str) -> None:
    make(images)
    (images.memory_path("one") / "manifest.json").write_text(damage)
    with pytest.raises(Conflict):
        images.find("one")


def test_a_cut_or_missing_file_is_noticed(images: Images) -> None:
    image = make(images)
    os.truncate(images.memory_path("one") / "pages.img", 100)
    with pytest.raises(Conflict):
        images.verify(image)
    (images.memory_path("one") / "pages.img").unlink()
    with pytest.raises(Conflict):
        images.verify(image)


def test_half_an_image_is_swept_away(images: Images) -> None:
    make(images)
    half = images.begin("half")
    (half / "pages.img").write_bytes(b"p")
    images.disk_take("half", images.disk_path("one"))
    images.sweep()
    assert images.known() == ["one"]
    assert not half.exists()
    assert not images.disk_path("half").exists()
