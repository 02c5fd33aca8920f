"""An image exists when its manifest does, and is used only while it is what was written."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from atoll.model import ids
from atoll.model.errors import Conflict, Internal, NotFound
from atoll.node.disks import btrfs
from atoll.node.disks.pool import Pool
from atoll.node.hashing import file_hash, file_hashes
from atoll.node.images import Boot, Image, Images, cpu_features
from atoll.node.names import HostNames

pytestmark = pytest.mark.real


@pytest.fixture
def images(data_dir: Path) -> Images:
    return Images(HostNames.of(data_dir), Pool.open(data_dir))


SLEEPER = ids.mint(ids.SANDBOX, 0, bytes(16))


def make(images: Images, image_id: str = "one", *, passing: bool = False, sandbox_id: str = "") -> Image:
    folder = images.begin(image_id)
    (folder / "pages.img").write_bytes(b"p" * 3_000_000)
    (folder / "checkpoint.img").write_bytes(b"c" * 1000)
    source = images.disk_path(image_id).parent.parent / "sandboxes" / image_id
    btrfs.subvolume_create(source)
    (source / "kept").write_text("kept")
    images.disk_take(image_id, source)
    boot = Boot("h", "/a", "/r")
    image = Image(image_id, boot, "token", "runsc", cpu_features(), file_hashes(folder), sandbox_id=sandbox_id)
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

    def look(path: Path, told: str) -> bool:
        looked.append(path.name)
        return file_hash(path) == told

    monkeypatch.setattr(images.key, "matches", look)
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(images.verify, [image] * 8))
    assert sorted(looked) == sorted(image.files)


def test_a_passing_image_is_there_at_once(images: Images) -> None:
    image = make(images, "passing", passing=True)
    assert images.find("passing") == image
    images.verify(image)
    images.remove("passing")
    assert images.known() == []


@pytest.mark.parametrize("damage", ["", "[]", "{}", '{"boot": 1}', "{", "1", "null"])
def test_a_damaged_manifest_is_refused(images: Images, damage: str) -> None:
    """And still it is known who sleeps in the image."""
    make(images, sandbox_id=SLEEPER)
    (images.memory_path("one") / "manifest.json").write_text(damage)
    with pytest.raises(Conflict):
        images.find("one")
    assert images.sleeper("one") == SLEEPER


def test_an_image_of_a_sleep_that_names_nobody_is_found(images: Images) -> None:
    pause = ids.mint(ids.PAUSE, 0, bytes(16))
    make(images, pause, sandbox_id=SLEEPER)
    assert images.nameless() == []
    (images.memory_path(pause) / "manifest.json").write_text("")
    assert images.nameless() == []
    (images.memory_path(pause) / "sandbox").unlink()
    assert images.nameless() == [pause]


def refused(images: Images, image_id: str) -> str:
    with pytest.raises(Conflict) as caught:
        images.find(image_id)
    return caught.value.code


def test_a_changed_or_exchanged_disk_is_refused(images: Images) -> None:
    make(images)
    make(images, "other")
    disk, other = images.disk_path("one"), images.disk_path("other")
    btrfs.read_only_set(disk, False)
    (disk / "kept").write_text("KEPT")
    btrfs.read_only_set(disk, True)
    assert refused(images, "one") == "image_damaged"
    btrfs.subvolume_delete(other)
    btrfs.snapshot_create(disk, other, read_only=True)
    assert refused(images, "other") == "image_damaged"


def test_the_use_of_an_image_does_not_change_its_disk(images: Images) -> None:
    """To take a disk of it, to let go of that, and whatever its flags are."""
    image = make(images)
    disk = images.disk_path("one")
    copy = disk.parent.parent / "sandboxes" / "copy"
    btrfs.snapshot_create(disk, copy)
    (copy / "more").write_text("more")
    btrfs.sync(copy)
    btrfs.subvolume_delete(copy)
    images.copy(image, "two")
    btrfs.read_only_set(disk, False)
    btrfs.read_only_set(disk, True)
    btrfs.sync(disk)
    assert images.find("one") == image
    assert images.find("two").disk != images.find("one").disk


def test_an_image_of_an_earlier_version_does_not_name_its_disk(images: Images) -> None:
    make(images)
    manifest = images.memory_path("one") / "manifest.json"
    raw = json.loads(manifest.read_text())
    assert raw.pop("disk")
    manifest.write_text(json.dumps(raw))
    assert images.find("one").disk == ""


def test_two_who_remove_an_image_at_once_both_succeed(images: Images, monkeypatch: pytest.MonkeyPatch) -> None:
    make(images)
    both = threading.Barrier(2, timeout=10)
    real = btrfs.subvolume_delete

    def delete(path: Path) -> None:
        both.wait()
        real(path)

    monkeypatch.setattr(btrfs, "subvolume_delete", delete)
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(images.remove, ["one", "one"]))
    assert images.known() == []
    assert not images.disk_path("one").exists()


def test_a_disk_that_does_not_go_is_told_in_our_words_and_keeps_no_server_from_starting(
    images: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(images)

    def fail(path: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    with monkeypatch.context() as patch:
        patch.setattr(btrfs, "subvolume_delete", fail)
        with pytest.raises(Internal) as caught:
            images.remove("one")
        assert caught.value.code == "disk_failed"
        images.sweep()
    images.sweep()
    assert not images.disk_path("one").exists()


def test_accounting_records_of_disks_that_are_gone_go_too(images: Images) -> None:
    """The kernel leaves that of a disk whose content outlived it in another."""
    make(images)
    first, second = images.disk_path("one"), images.disk_path("one").with_name("second")
    writer = first.parent.parent / "sandboxes" / "one"
    (writer / "large").write_bytes(b"x" * 100_000)
    btrfs.sync(writer)
    btrfs.snapshot_create(writer, second)
    gone = [btrfs.subvolume_id(one) for one in (writer, first, second)]
    for one in (writer, first, second):
        btrfs.subvolume_delete(one)
        assert btrfs.wait_cleaned(first.parent, gone[:1])
    assert btrfs.wait_cleaned(first.parent, gone)
    lives = first.parent.parent
    for _ in range(2):
        btrfs.quota_sweep(lives)
        groups = {path.name for path in (btrfs._sysfs(lives) / "qgroups").glob("0_*")}
        assert not {f"0_{one}" for one in gone} & groups
        assert groups, "those of what lives stay"


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


class Roomless:
    """No room at one of the steps that need some; with `lasting` at each one after it too."""

    def __init__(self, at: int, lasting: bool) -> None:
        self._left = at
        self._lasting = lasting

    def step(self) -> None:
        self._left -= 1
        if self._left == 0 or (self._lasting and self._left < 0):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def before(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def instead(*arguments: Any, **options: Any) -> Any:
            self.step()
            return call(*arguments, **options)

        return instead


@contextlib.contextmanager
def no_room(at: int, lasting: bool) -> Iterator[None]:
    luck = Roomless(at, lasting)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "rename", luck.before(Path.rename))
        for name in ("snapshot_create", "read_only_set"):
            patch.setattr(btrfs, name, luck.before(getattr(btrfs, name)))
        yield


@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("at", [1, 2, 3, 4])
def test_a_disk_that_cannot_be_lent_is_not_lost(images: Images, at: int, lasting: bool) -> None:
    """Whatever the step without room: the image is whole, and the next who asks for its disk gets it."""
    make(images, sandbox_id=SLEEPER)
    target = images.disk_path("one").parent.parent / "sandboxes" / "box"
    with no_room(at, lasting), pytest.raises(OSError, match="No space"):
        images.disk_lend("one", target)
    if target.exists():
        btrfs.subvolume_delete(target)  # as is done with a box that came to nothing
    images.find("one")
    images.disk_lend("one", target)
    assert (target / "kept").read_text() == "kept"
    assert {path.name for path in images.disk_path("one").parent.iterdir()} == {"one"}


@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_disk_that_cannot_be_kept_leaves_its_copy(images: Images, at: int, lasting: bool) -> None:
    make(images, sandbox_id=SLEEPER)
    box = images.disk_path("one").parent.parent / "sandboxes" / "one"
    with no_room(at, lasting), pytest.raises(OSError, match="No space"):
        images.disk_keep("one", box)
    images.find("one")
    assert (images.disk_path("one") / "kept").read_text() == "kept"
    images.remove("one")
    assert not list(images.disk_path("one").parent.iterdir())


def test_a_look_at_all_disks_leaves_alone_what_is_about_to_change_places(
    images: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the two disks one would be taken for what a killed server left."""
    make(images, sandbox_id=SLEEPER)
    half, go_on = threading.Event(), threading.Event()
    real = btrfs.read_only_set

    def halfway(*arguments: Any) -> None:
        half.set()
        assert go_on.wait(10)
        real(*arguments)

    monkeypatch.setattr(btrfs, "read_only_set", halfway)
    target = images.disk_path("one").parent.parent / "sandboxes" / "box"
    with ThreadPoolExecutor() as threads:
        lending = threads.submit(images.disk_lend, "one", target)
        assert half.wait(10)
        settling = threads.submit(images.settle_all)
        time.sleep(0.1)
        go_on.set()
        lending.result(10)
        settling.result(10)
    assert (target / "kept").read_text() == "kept"
    assert (images.disk_path("one") / "kept").read_text() == "kept"
