"""The asynchronous Python client, where it differs from the other: streams in tasks, watching by callbacks."""

from __future__ import annotations

import asyncio
from typing import Any

import runner
from e2b import CommandExitException, PtySize, SandboxNotRunningException, TimeoutException
from e2b_code_interpreter import AsyncSandbox
from runner import araised


async def case_commands_and_files() -> None:
    async with await AsyncSandbox.create("base", timeout=60) as sandbox:
        out: list[str] = []
        done = await sandbox.commands.run("echo 1; echo 2", on_stdout=out.append)
        assert (done.stdout, "".join(out)) == ("1\n2\n", "1\n2\n")
        await araised(CommandExitException, sandbox.commands.run("exit 2"))
        await sandbox.files.write("a", "x")
        assert await sandbox.files.read("a") == "x"
        assert b"".join([part async for part in await sandbox.files.read("a", format="stream")]) == b"x"
        assert await sandbox.is_running()


async def case_many_at_once() -> None:
    async with await AsyncSandbox.create("base", timeout=60) as sandbox:
        done = await asyncio.gather(*(sandbox.commands.run(f"echo {number}") for number in range(10)))
        assert [result.stdout for result in done] == [f"{number}\n" for number in range(10)]


async def case_changes_come_as_they_happen() -> None:
    async with await AsyncSandbox.create("base", timeout=60) as sandbox:
        seen: asyncio.Queue[Any] = asyncio.Queue()
        handle = await sandbox.files.watch_dir("/home/user", on_event=seen.put_nowait, include_entry=True)
        await sandbox.files.write("new.txt", "1")
        event = await asyncio.wait_for(seen.get(), 10)
        assert (event.name, event.type.value) == ("new.txt", "create")
        await handle.stop()


async def case_a_terminal() -> None:
    async with await AsyncSandbox.create("base", timeout=60) as sandbox:
        output: list[bytes] = []
        terminal = await sandbox.pty.create(PtySize(rows=24, cols=80), on_data=output.append)
        await sandbox.pty.send_stdin(terminal.pid, b"echo $((40 + 2)); exit\n")
        await terminal.wait()
        assert b"42" in b"".join(output)


async def case_a_killed_sandbox_ends_what_waits_for_it() -> None:
    sandbox = await AsyncSandbox.create("base", timeout=60)
    running = await sandbox.commands.run("sleep 60", background=True)
    await sandbox.kill()
    await araised(TimeoutException, running.wait())
    await araised(SandboxNotRunningException, sandbox.commands.run("true"))


async def case_slow_languages() -> None:
    sandbox = await AsyncSandbox.create(timeout=100)
    assert "42" in str((await sandbox.run_code("40 + 2", language="r")).text)
    assert (await sandbox.run_code("System.out.println(40 + 2);", language="java")).logs.stdout == ["42\n"]
    assert (await sandbox.run_code("const x: number = 42; x", language="ts")).text == "42"
    await sandbox.kill()


async def case_code() -> None:
    sandbox = await AsyncSandbox.create(timeout=60)
    assert (await sandbox.run_code("x = 2; x * 21")).text == "42"
    context = await sandbox.create_code_context()
    assert (await sandbox.run_code("'x' in globals()", context=context)).text == "False"
    await sandbox.kill()


if __name__ == "__main__":
    runner.main(globals())
