"""The asynchronous Python client in a few seconds: commands, output as it comes, files, changes, several at once."""

from __future__ import annotations

import asyncio
from typing import Any

import runner
from e2b import CommandExitException
from e2b_code_interpreter import AsyncSandbox
from runner import araised


async def case_the_asynchronous_client_works() -> None:
    async with await AsyncSandbox.create("base", timeout=60) as sandbox:
        changes: asyncio.Queue[Any] = asyncio.Queue()
        watcher = await sandbox.files.watch_dir("/home/user", on_event=changes.put_nowait)
        out: list[str] = []
        done, text, failed = await asyncio.gather(
            sandbox.commands.run("echo 1; echo 2", on_stdout=out.append),
            sandbox.commands.run("cat /etc/hostname"),
            araised(CommandExitException, sandbox.commands.run("exit 2")),
        )
        assert (done.stdout, "".join(out), failed.exit_code) == ("1\n2\n", "1\n2\n", 2)
        assert await sandbox.files.read("/etc/hostname") == text.stdout
        await sandbox.files.write("new.txt", "1")
        assert (await asyncio.wait_for(changes.get(), 10)).name == "new.txt"
        await watcher.stop()
        cat = await sandbox.commands.run("cat", background=True, stdin=True)
        await sandbox.commands.send_stdin(cat.pid, "in")
        await sandbox.commands.close_stdin(cat.pid)
        assert (await cat.wait()).stdout == "in"


if __name__ == "__main__":
    runner.main(globals())
