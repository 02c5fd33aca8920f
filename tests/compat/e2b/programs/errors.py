"""What goes wrong, and the exception that a Python user catches; written for the asynchronous client, run for both."""

from __future__ import annotations

import asyncio
import inspect
import os
from typing import Any

import e2b
import runner
from e2b import (
    AsyncVolume,
    AuthenticationException,
    FileNotFoundException,
    InvalidArgumentException,
    NotEnoughSpaceException,
    RateLimitException,
    SandboxException,
    SandboxNotFoundException,
    SandboxNotRunningException,
    TimeoutException,
)
from e2b_code_interpreter import AsyncSandbox
from runner import araised, await_until

SYNC = not inspect.iscoroutinefunction(AsyncSandbox.create)
NOBODY = "e2b_" + "0" * 64
MIB = 1024 * 1024


async def case_a_paused_sandbox_answers_nothing() -> None:
    box = await AsyncSandbox.create(timeout=100)
    await box.pause()
    assert await box.is_running() is False
    for call in (
        lambda: box.commands.run("true"),
        lambda: box.commands.list(),
        lambda: box.files.read("/etc/hostname"),
        lambda: box.files.write("f", "1"),
        lambda: box.files.list("/"),
        lambda: box.pty.kill(1),
    ):
        await araised(SandboxNotRunningException, call)
    await araised(TimeoutException, lambda: box.run_code("1"))
    await araised(SandboxException, lambda: box.fork())
    await box.kill()


async def case_a_killed_sandbox_is_gone_everywhere() -> None:
    box = await AsyncSandbox.create(timeout=100)
    running = await box.commands.run("sleep 100", background=True)
    await box.kill()
    await araised(TimeoutException, lambda: running.wait())
    assert await box.is_running() is False
    for call in (lambda: box.commands.run("true"), lambda: box.files.read("f"), lambda: box.files.exists("f")):
        await araised(SandboxNotRunningException, call)
    await araised(TimeoutException, lambda: box.run_code("1"))
    for call in (
        lambda: box.get_info(),
        lambda: box.set_timeout(10),
        lambda: box.get_metrics(),
        lambda: box.pause(),
        lambda: box.fork(),
        lambda: box.create_snapshot(),
        lambda: box.update_network({}),
        lambda: AsyncSandbox.connect(box.sandbox_id),
    ):
        await araised(SandboxNotFoundException, call)
    assert await box.kill() is False


async def case_a_deadline_kills() -> None:
    box = await AsyncSandbox.create("base", timeout=1)
    await await_until(lambda: ended(box))
    error = await araised(SandboxNotRunningException, lambda: box.commands.run("true"))
    assert "timeout" in str(error)


async def ended(box: Any) -> bool:
    return not await box.is_running()


async def case_time_runs_out() -> None:
    """Of a command, which then is ended; of code, which is interrupted; and of a request."""
    box = await AsyncSandbox.create(timeout=100)
    await araised(TimeoutException, lambda: box.commands.run("sleep 77", timeout=0.5))
    await await_until(lambda: quiet(box))
    await araised(TimeoutException, lambda: box.run_code("import time\ntime.sleep(77)", timeout=0.5))
    assert (await box.run_code("1 + 1")).text == "2"
    slow = await araised(Exception, lambda: AsyncSandbox.get_info(box.sandbox_id, request_timeout=1e-6))
    assert "imeout" in type(slow).__name__, repr(slow)
    slow = await araised(Exception, lambda: box.files.read("/etc/hostname", request_timeout=1e-6))
    assert "imeout" in type(slow).__name__, repr(slow)
    await box.kill()


async def quiet(box: Any) -> bool:
    return not any("sleep 77" in entry.args for entry in await box.commands.list())


async def case_who_leaves_interrupts_code_and_nothing_else() -> None:
    box = await AsyncSandbox.create(timeout=100)
    if not SYNC:
        running = asyncio.ensure_future(box.run_code("open('/tmp/begun', 'w').close()\nimport time\ntime.sleep(77)"))
        await await_until(lambda: box.files.exists("/tmp/begun"))
        running.cancel()
        await asyncio.wait([running])
    else:
        await araised(TimeoutException, lambda: box.run_code("import time\ntime.sleep(77)", timeout=0.5))
    assert (await box.run_code("1 + 1")).text == "2"  # within its time: the kernel is free again
    command = await box.commands.run("sleep 78", background=True)
    await command.disconnect()
    assert command.pid in [entry.pid for entry in await box.commands.list()]
    await box.kill()


async def case_an_unknown_key_opens_nothing() -> None:
    box = await AsyncSandbox.create("base", timeout=100)
    for call in (
        lambda: AsyncSandbox.create("base", api_key=NOBODY),
        lambda: AsyncSandbox.get_info(box.sandbox_id, api_key=NOBODY),
        lambda: AsyncSandbox.connect(box.sandbox_id, api_key=NOBODY),
        lambda: AsyncSandbox.kill(box.sandbox_id, api_key=NOBODY),
        lambda: AsyncSandbox.list(api_key=NOBODY).next_items(),
        lambda: AsyncVolume.list(api_key=NOBODY),
        lambda: e2b.AsyncSecret.create("k", "v", api_key=NOBODY),
        lambda: e2b.AsyncTemplate.exists("base", api_key=NOBODY),
    ):
        await araised(AuthenticationException, call)
    assert await box.kill() is True


async def case_a_full_disk() -> None:
    if "SMALL_DISK" not in os.environ:
        return  # with names for each port the same is answered by the same
    box = await AsyncSandbox.connect(os.environ["SMALL_DISK"], timeout=1000)
    many = os.urandom(100 * MIB)
    for octets in (True, False):
        options = {"use_octet_stream": octets}
        await araised(NotEnoughSpaceException, lambda options=options: box.files.write("large", many, **options))
    assert (await box.commands.run("echo 1")).stdout == "1\n"


async def case_what_is_not_there() -> None:
    box = await AsyncSandbox.create("base", timeout=100)
    files = box.files
    for call in (
        lambda: files.read("nothing"),
        lambda: files.list("nothing"),
        lambda: files.get_info("nothing"),
        lambda: files.rename("nothing", "other"),
    ):
        await araised(FileNotFoundException, call)
    await files.remove("nothing")  # as with E2B: what shall not be there is not there
    assert await files.exists("nothing") is False
    assert await box.commands.kill(999_999) is False
    assert await box.pty.kill(999_999) is False
    await araised(e2b.NotFoundException, lambda: box.commands.connect(999_999))
    await araised(e2b.NotFoundException, lambda: box.commands.send_stdin(999_999, "x"))
    await araised(e2b.NotFoundException, lambda: box.pty.resize(999_999, e2b.PtySize(20, 20)))
    for call in (
        lambda: AsyncSandbox.get_info("sbnothing"),
        lambda: AsyncSandbox.connect("sbnothing"),
        lambda: AsyncSandbox.set_timeout("sbnothing", 10),
        lambda: AsyncSandbox.pause("sbnothing"),
    ):
        await araised(SandboxNotFoundException, call)
    assert await AsyncSandbox.kill("sbnothing") is False
    await araised(e2b.VolumeNotFoundException, lambda: AsyncVolume.connect("nothing"))
    await araised(SandboxException, lambda: AsyncSandbox.create("base", volume_mounts={"/data": "nothing"}))
    error = await araised(SandboxException, lambda: AsyncSandbox.create("nothing-like-it"))
    assert "nothing-like-it" in str(error)
    await box.kill()


async def case_what_makes_no_sense() -> None:
    box = await AsyncSandbox.create("base", timeout=100)
    for call in (
        lambda: box.files.read("/etc"),
        lambda: box.files.write("/etc", "x", user="root"),
        lambda: box.files.list("/etc/hostname"),
        lambda: box.commands.run("true", cwd="/nowhere"),
    ):
        await araised(InvalidArgumentException, call)
    for call in (lambda: box.commands.run("true", user="nobody9"), lambda: box.files.read("f", user="nobody9")):
        assert "nobody9" in str(await araised(AuthenticationException, call))
    refused: list[Any] = [
        lambda: AsyncSandbox.create("base", timeout=10**9),
        lambda: AsyncSandbox.create("base", timeout=-1),
        lambda: box.set_timeout(-1),
        lambda: AsyncSandbox.create("base", network={"deny_out": ["example.com"]}),
        lambda: AsyncSandbox.create("base", network={"allow_out": ["not a host"], "deny_out": ["0.0.0.0/0"]}),
        lambda: AsyncSandbox.create("base", network={"mask_request_host": "two words"}),
        lambda: AsyncSandbox.create("base", envs={"A=B": "1"}),
    ]
    for call in refused:
        error = await araised(SandboxException, call)
        assert "400" in str(error), error
    await box.kill()


async def case_what_is_too_large() -> None:
    box = await AsyncSandbox.create("base", timeout=100)
    await araised(RateLimitException, lambda: box.commands.run("echo " + "x" * 5 * MIB))
    error = await araised(SandboxException, lambda: AsyncSandbox.create("base", metadata={"m": "x" * 5 * MIB}))
    assert "413" in str(error), error
    assert (await box.commands.run("echo 1")).stdout == "1\n"
    await box.kill()


if __name__ == "__main__":
    runner.main_of_both(globals())
