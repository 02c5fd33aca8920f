"""What goes wrong, and what users of Python's client of 2025 catch; written for the asynchronous, run for both."""

from __future__ import annotations

import runner
from e2b import (
    AuthenticationException,
    InvalidArgumentException,
    NotFoundException,
    SandboxException,
    TimeoutException,
)
from e2b_code_interpreter import AsyncSandbox
from runner import araised, await_until

NOBODY = "e2b_" + "0" * 64


async def case_a_paused_sandbox_answers_nothing() -> None:
    box = await AsyncSandbox.create("base", timeout=100)
    await box.beta_pause()
    assert await box.is_running() is False
    for call in (
        lambda: box.commands.run("true"),
        lambda: box.files.read("/etc/hostname"),
        lambda: box.files.list("/"),
        lambda: box.run_code("1"),
    ):
        await araised(TimeoutException, call)
    await box.kill()


async def case_a_killed_sandbox_is_gone_everywhere() -> None:
    box = await AsyncSandbox.create("base", timeout=100)
    running = await box.commands.run("sleep 100", background=True)
    await box.kill()
    await araised(TimeoutException, lambda: running.wait())
    assert await box.is_running() is False
    for call in (lambda: box.commands.run("true"), lambda: box.files.read("f"), lambda: box.run_code("1")):
        await araised(TimeoutException, call)
    for call in (
        lambda: box.get_info(),
        lambda: box.set_timeout(10),
        lambda: box.beta_pause(),
        lambda: AsyncSandbox.connect(box.sandbox_id),
    ):
        await araised(SandboxException, call)
    assert await box.kill() is False


async def case_time_runs_out() -> None:
    box = await AsyncSandbox.create(timeout=100)
    await araised(TimeoutException, lambda: box.commands.run("sleep 77", timeout=0.5))
    await araised(TimeoutException, lambda: box.run_code("import time\ntime.sleep(77)", timeout=0.5))
    assert (await box.run_code("1 + 1")).text == "2"
    await box.set_timeout(1)
    await await_until(lambda: ended(box))
    await araised(TimeoutException, lambda: box.commands.run("true"))


async def ended(box: AsyncSandbox) -> bool:
    return not await box.is_running()


async def case_an_unknown_key_opens_nothing() -> None:
    box = await AsyncSandbox.create("base", timeout=100)
    for call in (
        lambda: AsyncSandbox.create("base", api_key=NOBODY),
        lambda: AsyncSandbox.get_info(box.sandbox_id, api_key=NOBODY),
        lambda: AsyncSandbox.connect(box.sandbox_id, api_key=NOBODY),
        lambda: AsyncSandbox.kill(box.sandbox_id, api_key=NOBODY),
        lambda: AsyncSandbox.list(api_key=NOBODY).next_items(),
    ):
        await araised(AuthenticationException, call)
    assert await box.kill() is True


async def case_what_is_not_there() -> None:
    box = await AsyncSandbox.create("base", timeout=100)
    for call in (
        lambda: box.files.read("nothing"),
        lambda: box.files.list("nothing"),
        lambda: box.files.rename("nothing", "other"),
        lambda: box.commands.connect(999_999),
        lambda: AsyncSandbox.get_info("sbnothing"),
        lambda: AsyncSandbox.connect("sbnothing"),
    ):
        await araised(NotFoundException, call)
    assert await box.commands.kill(999_999) is False
    assert await AsyncSandbox.kill("sbnothing") is False
    assert "nothing-like-it" in str(await araised(SandboxException, lambda: AsyncSandbox.create("nothing-like-it")))
    await box.kill()


async def case_what_makes_no_sense() -> None:
    box = await AsyncSandbox.create("base", timeout=100)
    for call in (
        lambda: box.files.read("/etc"),
        lambda: box.files.list("/etc/hostname"),
        lambda: box.commands.run("true", cwd="/nowhere"),
    ):
        await araised(InvalidArgumentException, call)
    for call in (lambda: box.commands.run("true", user="nobody9"), lambda: box.files.read("f", user="nobody9")):
        assert "nobody9" in str(await araised(AuthenticationException, call))
    assert "400" in str(await araised(SandboxException, lambda: AsyncSandbox.create("base", timeout=10**9)))
    await box.kill()


if __name__ == "__main__":
    runner.main_of_both(globals())
