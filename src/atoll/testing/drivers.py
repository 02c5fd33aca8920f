"""The driver contract as named checks: ours and a stranger's driver must pass all of them.

`check_driver` is given a way to make bundles (a disk with a guest, a network, a control group) and runs each check on a
fresh box. It returns the names of the checks that ran; a broken promise raises `ContractBroken` with the check's name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

from atoll.model.errors import GuestFailed
from atoll.node.runtime.base import Box, Bundle, Driver

MakeBundle = Callable[[], AbstractAsyncContextManager[Bundle]]
Check = Callable[[Driver, Bundle, Path], Awaitable[None]]

ANSWER_S_MAX = 20.0


class ContractBroken(AssertionError):
    """A driver did not keep a promise of `node.runtime.base`."""


async def check_driver(driver: Driver, make_bundle: MakeBundle, scratch: Path) -> list[str]:
    """Run every check; `scratch` is an empty folder for snapshots."""
    capabilities = await driver.probe()
    _require(not capabilities.problem, "probe", f"the driver cannot be used here: {capabilities.problem}")
    done = []
    for check in CHECKS:
        if check in _NEED_SNAPSHOTS and not capabilities.snapshots:
            continue
        async with make_bundle() as bundle:
            await check(driver, bundle, scratch / bundle.box_id)
        done.append(getattr(check, "__name__", str(check)))
    return done


async def check_answers_after_start(driver: Driver, bundle: Bundle, _: Path) -> None:
    """Nothing runs before `start`; after it the guest can be reached."""
    box = await driver.create(bundle)
    try:
        _require(not await _answers(box, 0.2), "create", "the guest runs before start")
        await box.start()
        _require(await _answers(box), "start", "the guest cannot be reached")
    finally:
        await box.destroy()


async def check_destroy_is_idempotent(driver: Driver, bundle: Bundle, _: Path) -> None:
    """`destroy` twice, `discard` after it, and `discard` of what never was."""
    box = await driver.create(bundle)
    await box.destroy()
    await box.destroy()
    await driver.discard(bundle.box_id, bundle.folder)
    await driver.discard("bx" + "a" * 36, bundle.folder)


async def check_destroy_ends_a_waiter(driver: Driver, bundle: Bundle, _: Path) -> None:
    """Who waits for the exit of a box learns of it, during `destroy` and after it."""
    box = await driver.create(bundle)
    await box.start()
    async with asyncio.timeout(ANSWER_S_MAX), asyncio.TaskGroup() as tasks:
        tasks.create_task(box.wait_exited())
        await asyncio.sleep(0.05)
        await box.destroy()
    async with asyncio.timeout(1):
        await box.wait_exited()


async def check_adopts_the_living(driver: Driver, bundle: Bundle, _: Path) -> None:
    """A box is found again by its record and answers; a record of another process is not taken for it."""
    box = await driver.create(bundle)
    await box.start()
    try:
        _require(await _answers(box), "start", "the guest cannot be reached")
        record = box.record()
        again = await driver.adopt(bundle, record)
        _require(again is not None, "adopt", "a living box was not found")
        assert again is not None
        _require(await _answers(again), "adopt", "an adopted box does not answer")
        stale = replace(record, pid_started=record.pid_started + 1)
        _require(await driver.adopt(bundle, stale) is None, "adopt", "a reused pid was taken for the box")
    finally:
        await box.destroy()
    _require(await driver.adopt(bundle, record) is None, "adopt", "a dead box was taken for alive")


async def check_pause_and_resume(driver: Driver, bundle: Bundle, _: Path) -> None:
    """A resumed box answers again, also if it was told twice, and if somebody else finds it paused."""
    box = await driver.create(bundle)
    await box.start()
    try:
        _require(await _answers(box), "start", "the guest cannot be reached")
        await box.pause()
        await box.pause()
        await box.resume()
        await box.resume()
        _require(await _answers(box), "resume", "the guest does not answer after a resume")
        await box.pause()
        again = await driver.adopt(bundle, box.record())
        assert again is not None
        await again.resume()
        _require(await _answers(again), "resume", "the guest does not answer after it was adopted and resumed")
    finally:
        await box.destroy()


async def check_snapshot_leaves_it_running(driver: Driver, bundle: Bundle, target: Path) -> None:
    """A snapshot fills its folder, and the box goes on."""
    box = await driver.create(bundle)
    await box.start()
    try:
        _require(await _answers(box), "start", "the guest cannot be reached")
        await asyncio.to_thread(target.mkdir, parents=True)
        await box.snapshot(target)
        _require(bool(await asyncio.to_thread(lambda: list(target.iterdir()))), "snapshot", "there is nothing in it")
        _require(await _answers(box), "snapshot", "the guest does not answer after a snapshot")
    finally:
        await box.destroy()


CHECKS: tuple[Check, ...] = (
    check_answers_after_start,
    check_destroy_is_idempotent,
    check_destroy_ends_a_waiter,
    check_adopts_the_living,
    check_pause_and_resume,
    check_snapshot_leaves_it_running,
)
_NEED_SNAPSHOTS = frozenset({check_pause_and_resume, check_snapshot_leaves_it_running})


async def _answers(box: Box, within_s: float = ANSWER_S_MAX) -> bool:
    """Whether a connection to the guest succeeds within this time."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + within_s
    while loop.time() < deadline_s:
        try:
            (await box.connect_guest()).close()
        except GuestFailed:
            await asyncio.sleep(0.005)
        else:
            return True
    return False


def _require(holds: bool, promise: str, message: str) -> None:
    if not holds:
        raise ContractBroken(f"{promise}: {message}")
