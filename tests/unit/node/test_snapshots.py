"""An image that somebody uses is not removed before they let go of it, however they use it."""

from __future__ import annotations

import errno
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest

from atoll.model import ids, limits
from atoll.model.errors import Conflict, Internal
from atoll.node.activity import Activity
from atoll.node.disks import compare
from atoll.node.snapshots import Snapshots
from atoll.wire.node import DiskChanges

pytestmark = pytest.mark.anyio


async def test_a_removal_waits_for_everybody_who_uses_the_image() -> None:
    removed: list[str] = []
    host: Any = SimpleNamespace(images=SimpleNamespace(remove=removed.append))
    snapshots = Snapshots(host, cast(Any, None), {}, cast(Any, None))
    async with anyio.create_task_group() as tasks:
        with snapshots.using("one"):
            with snapshots.using("one"):
                tasks.start_soon(snapshots.remove, "one")
                await snapshots.remove("other")
                await anyio.wait_all_tasks_blocked()
            await anyio.wait_all_tasks_blocked()
            assert removed == ["other"]
    assert removed == ["other", "one"]


async def test_who_needs_the_disk_of_a_paused_sandbox_waits_until_it_is_in_its_place() -> None:
    """A pause answers before; whatever comes next finds one disk, and not two that change places."""
    seen: list[str] = []
    going_on = threading.Event()

    def disk_keep(image_id: str, _disk: Any) -> None:
        going_on.wait(10)
        seen.append(f"{image_id} kept")

    images = SimpleNamespace(disk_keep=disk_keep, remove=lambda image_id: seen.append(f"{image_id} removed"))
    host: Any = SimpleNamespace(images=images, pool=SimpleNamespace(disk_path=lambda box_id: box_id))

    class Paused:
        entry = SimpleNamespace(box_id="box")

        async def thaw(self) -> None: ...
        async def strike(self) -> None: ...
        async def capture(self, image_id: str, *, memory: bool, asleep: bool) -> None:
            assert (memory, asleep) == (True, True)

    instances: Any = {"sandbox": Paused()}
    snapshots = Snapshots(host, cast(Any, None), instances, cast(Any, None))
    instance, image_id = await snapshots.pause("sandbox", memory=True)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(snapshots.remove, image_id)
        tasks.start_soon(snapshots.disk_keep, image_id, instance)
        await anyio.sleep(0.05)
        assert not seen
        going_on.set()
    assert seen == [f"{image_id} kept", f"{image_id} removed"]


async def test_a_paused_sandbox_whose_image_is_damaged_is_still_one_and_sleeps_in_the_newest() -> None:
    """So that its resume says why not, and its kill removes the image; nobody can say whose a nameless one is."""
    sandbox_id = ids.mint(ids.SANDBOX, 0, bytes(16))
    old, new, nameless = (ids.mint(ids.PAUSE, moment, bytes(16)) for moment in (1, 2, 3))
    removed: list[str] = []

    def find(_image_id: str) -> Any:
        raise Conflict("the image's manifest is damaged", code="image_damaged")

    images = SimpleNamespace(
        settle_all=lambda: None,
        known=lambda: [old, new, nameless],
        find=find,
        sleeper=lambda image_id: "" if image_id == nameless else sandbox_id,
        remove=removed.append,
    )
    host: Any = SimpleNamespace(images=images)
    snapshots = Snapshots(host, cast(Any, None), {}, cast(Any, None))
    snapshots.recover()
    assert snapshots.paused == {sandbox_id: new}
    assert removed == [old]


@pytest.mark.parametrize("asleep", [True, False])
async def test_a_comparison_looks_at_a_copy_that_nobody_else_touches(
    asleep: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whoever sleeps may wake meanwhile, be written to, and lose the image that it slept in."""
    taken: dict[str, Path] = {}
    images = SimpleNamespace(
        find=lambda image_id: SimpleNamespace(id=image_id),
        disk_path=lambda image_id: tmp_path / image_id,
        disk_take=lambda image_id, source: taken.setdefault(image_id, source),
        remove=lambda image_id: taken.pop(image_id, None),
    )
    host: Any = SimpleNamespace(images=images, pool=SimpleNamespace(disk_path=lambda box_id: tmp_path / box_id))
    instances: Any = {"sandbox": SimpleNamespace(entry=SimpleNamespace(box_id="box"))}
    snapshots = Snapshots(host, cast(Any, None), instances, cast(Any, None))
    if asleep:
        snapshots.paused["sandbox"] = "pause"

    def changes(before: Path, after: Path, _look: Any) -> DiskChanges:
        assert before == tmp_path / "before"
        assert taken == {after.name: tmp_path / ("pause" if asleep else "box")}
        assert not snapshots._in_use["pause"], "it may wake, and its image go"
        return DiskChanges([])

    monkeypatch.setattr(compare, "changes", changes)
    assert await snapshots.diff("before", "sandbox") == DiskChanges([])
    assert taken == {}


async def test_who_puts_a_file_back_slowly_holds_no_image(tmp_path: Path) -> None:
    """Its open file is enough. The call counts as work of the sandbox, and one in standby has to be woken for it."""
    (tmp_path / "file").write_bytes(b"four")
    images = SimpleNamespace(find=lambda _: None, disk_path=lambda _: tmp_path)
    host: Any = SimpleNamespace(images=images)
    activity = Activity(lambda: False)
    got: list[bytes] = []

    class Guest:
        async def upload(self, op: str, params: dict[str, Any], chunks: Any) -> None:
            assert (op, params["path"]) == ("file.put_back", "/file")
            assert not snapshots.in_use("image")
            assert activity._calls == 1
            got.extend([chunk async for chunk in chunks])

    instance = SimpleNamespace(frozen=True, activity=activity, guest=Guest(), guest_is_ours=lambda: True)
    snapshots = Snapshots(host, cast(Any, None), cast(Any, {"sandbox": instance}), cast(Any, None))
    with pytest.raises(Conflict) as refused:
        await snapshots.file_restore("image", "sandbox", "/file")
    assert refused.value.code == "asleep"
    instance.frozen = False
    assert await snapshots.file_restore("image", "sandbox", "/file") == 4
    assert (got, activity._calls) == ([b"four"], 0)


async def test_an_image_of_one_in_standby_is_whole_though_it_does_not_stand_still_again() -> None:
    """Who took it says again that it shall, and writes down what is true."""
    told: list[str] = []

    class Standing:
        frozen, ending = True, False
        entry = SimpleNamespace(box_id="box")

        async def thaw(self) -> None:
            told.append("thaw")

        async def freeze(self) -> None:
            told.append("freeze")
            raise Internal("it does not stand still")

        async def capture(self, image_id: str, *, memory: bool, passing: bool) -> Any:
            assert not passing
            return SimpleNamespace(id=image_id, has_memory=memory, memory_bytes=1, disk_bytes=2)

    host: Any = SimpleNamespace()
    snapshots = Snapshots(host, cast(Any, None), cast(Any, {"sandbox": Standing()}), cast(Any, None))
    assert (await snapshots.take("sandbox", "image", memory=True)).has_memory
    assert told == ["thaw", "freeze"]


async def test_a_copy_that_could_not_go_for_want_of_room_goes_when_there_is_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody may look at the image before it is needed again, which can be in a month."""
    monkeypatch.setattr(limits, "LOOP_RETRY_S", 0.001)
    tried: list[str] = []

    def settle(image_id: str) -> None:
        tried.append(image_id)
        if len(tried) < 3:
            raise OSError(errno.ENOSPC, "no space left on device")

    images = SimpleNamespace(is_unsettled=lambda _: len(tried) < 3, settle=settle)
    snapshots = Snapshots(cast(Any, SimpleNamespace(images=images)), cast(Any, None), {}, cast(Any, None))
    with anyio.fail_after(5):
        await snapshots.settle("one")
    assert tried == ["one"] * 3
