"""Methods and options of the asynchronous Python client that its other program has no use for."""

from __future__ import annotations

import asyncio
from typing import Any

import runner
from e2b import AsyncSecret, AsyncTemplate, PtySize, SandboxException, SandboxNotFoundException, SandboxQuery
from e2b_code_interpreter import AsyncSandbox
from runner import araised


async def case_states() -> None:
    sandbox = await AsyncSandbox.create("base", timeout=60, lifecycle={"on_timeout": "pause", "auto_resume": True})
    await sandbox.files.write("kept", "1")
    assert await sandbox.pause(strict=True)
    assert await sandbox.beta_pause() is False
    woken = await AsyncSandbox.connect(sandbox.sandbox_id, timeout=60, on_resume="reboot")
    assert await woken.files.read("kept") == "1"
    await woken.set_timeout(50)
    assert (await woken.get_info()).sandbox_id == sandbox.sandbox_id
    assert (await woken.get_metrics())[-1].mem_total > 0
    assert await AsyncSandbox.kill(sandbox.sandbox_id)
    assert not await AsyncSandbox.kill(sandbox.sandbox_id)
    await araised(SandboxNotFoundException, AsyncSandbox.get_info(sandbox.sandbox_id))


async def case_copies_and_snapshots() -> None:
    async with await AsyncSandbox.create("base", timeout=60) as sandbox:
        await sandbox.files.write("copied", "yes")
        (made,) = await sandbox.fork(count=1, timeout=60)
        copy = getattr(made, "sandbox", None) or made
        assert await copy.files.read("copied") == "yes"
        await copy.kill()
        taken = await sandbox.create_snapshot(name="aio-options")
        found = await sandbox.list_snapshots(limit=1, name="aio-options").next_items()
        assert [entry.snapshot_id for entry in found] == [taken.snapshot_id]
        assert await AsyncSandbox.delete_snapshot(taken.snapshot_id)


async def case_lists_and_networks() -> None:
    async with await AsyncSandbox.create("base", timeout=60, metadata={"aio": "1"}) as sandbox:
        page = AsyncSandbox.list(query=SandboxQuery(metadata={"aio": "1"}, template="base"), order="asc", limit=5)
        assert [entry.sandbox_id for entry in await page.next_items()] == [sandbox.sandbox_id]
        await sandbox.update_network({"deny_out": ["192.0.2.0/24"]})
        assert (await sandbox.get_info()).network["deny_out"] == ["192.0.2.0/24"]


async def case_handles() -> None:
    async with await AsyncSandbox.create("base", timeout=60) as sandbox:
        started = await sandbox.commands.run(
            "cat", background=True, stdin=True, user="root", cwd="/tmp", envs={"A": "1"}
        )
        out: list[str] = []
        joined = await sandbox.commands.connect(started.pid, timeout=20, on_stdout=out.append)
        await started.send_stdin("one\n")
        await sandbox.commands.send_stdin(started.pid, "two\n")
        async with sandbox.commands.stream_input(started.pid, timeout=20) as given:
            await given.send("three\n")
        await started.close_stdin()
        assert (await started.wait()).stdout == "one\ntwo\nthree\n"
        await joined.wait()
        assert "".join(out) == "one\ntwo\nthree\n"
        assert not await sandbox.commands.kill(started.pid)
        seen: list[bytes] = []
        terminal = await sandbox.pty.create(PtySize(24, 80), on_data=seen.append, cwd="/tmp", envs={"WHO": "me"})
        await sandbox.pty.resize(terminal.pid, PtySize(31, 101))
        await sandbox.pty.send_stdin(terminal.pid, b"stty size; echo $WHO-; exit\n")
        await terminal.wait()
        assert b"31 101" in b"".join(seen)
        assert b"me-" in b"".join(seen)


async def case_files() -> None:
    async with await AsyncSandbox.create("base", timeout=60) as sandbox:
        files = sandbox.files
        await files.write("zipped", "x" * 100_000, gzip=True, metadata={"kind": "test"})
        assert len(await files.read("zipped", format="bytes", gzip=True)) == 100_000
        assert (await files.get_info("zipped")).metadata == {"kind": "test"}
        await files.write_files([{"path": "/root/a", "data": "1"}], user="root", use_octet_stream=True)
        assert await files.exists("/root/a", user="root")
        assert await files.make_dir("d/e")
        assert not await files.make_dir("d/e")
        assert [entry.name for entry in await files.list("d", depth=2)] == ["e"]
        ended: asyncio.Queue[Any] = asyncio.Queue()
        seen: asyncio.Queue[Any] = asyncio.Queue()
        handle = await files.watch_dir(
            "d", on_event=seen.put_nowait, on_exit=ended.put_nowait, recursive=True, timeout=0
        )
        await files.rename("zipped", "d/e/f")
        assert (await asyncio.wait_for(seen.get(), 10)).name == "e/f"
        await handle.stop()
        await files.remove("d")
        assert not await files.exists("d")


async def case_git() -> None:
    async with await AsyncSandbox.create("base", timeout=60) as sandbox:
        git = sandbox.git
        await git.init("repo", initial_branch="main")
        await sandbox.files.write("repo/a", "1")
        await git.add("repo")
        await git.commit("repo", "first", author_name="Ada", author_email="ada@example.com")
        assert (await git.status("repo")).is_clean
        await git.clone("/home/user/repo", "copy", branch="main")
        assert await sandbox.files.read("copy/a") == "1"


async def case_code_has_options() -> None:
    sandbox = await AsyncSandbox.create(timeout=60)
    lines: list[str] = []
    code = "import os\nprint(os.environ['Q'])"
    await sandbox.run_code(code, envs={"Q": "7"}, timeout=20, on_stdout=lambda message: lines.append(message.line))
    assert lines == ["7\n"]
    context = await sandbox.create_code_context(cwd="/tmp", language="python")
    await sandbox.run_code("y = 1", context=context)
    await sandbox.restart_code_context(context)
    assert (await sandbox.run_code("y", context=context)).error.name == "NameError"
    assert context.id in {entry.id for entry in await sandbox.list_code_contexts()}
    await sandbox.remove_code_context(context)
    await sandbox.kill()


async def case_secrets_templates_and_refusals() -> None:
    await AsyncSecret.create("aio-option", "v", metadata={"a": "1"})
    assert (await AsyncSecret.get_info("aio-option")).metadata == {"a": "1"}
    assert await AsyncSecret.exists("aio-option")
    assert await AsyncSecret.destroy("aio-option")
    assert await AsyncTemplate.exists("base")
    assert [tag.tag for tag in await AsyncTemplate.get_tags("base")] == ["default"]
    error = await araised(Exception, AsyncTemplate.build(AsyncTemplate().from_base_image(), "mine"))
    assert "cannot be built" in str(error)
    error = await araised(SandboxException, AsyncSandbox.create("base", network={"https_ports": [8443]}))
    assert "this server does not have that" in str(error)


if __name__ == "__main__":
    runner.main(globals())
