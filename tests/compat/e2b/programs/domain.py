"""A Python client of any age, with a name for each port: what `get_host` gives works."""

from __future__ import annotations

import asyncio
import functools
import os
import ssl
import urllib.request
from typing import Any

import runner
from e2b import CommandExitException, NotFoundException
from e2b_code_interpreter import AsyncSandbox, Sandbox
from runner import araised, raised, wait_until


@functools.cache
def box() -> Any:
    return Sandbox.create(timeout=300, metadata={"age": "any"})


def close() -> None:
    box().kill()


def _get(address: str) -> bytes:
    context = ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"])
    with urllib.request.urlopen(address, context=context) as answer:
        return bytes(answer.read())


def case_commands() -> None:
    assert box().commands.run("echo hi").stdout == "hi\n"
    assert raised(CommandExitException, lambda: box().commands.run("exit 3")).exit_code == 3


def case_files() -> None:
    box().files.write("a.txt", "1")
    assert box().files.read("a.txt") == "1"
    assert "a.txt" in [entry.name for entry in box().files.list("/home/user")]
    raised(NotFoundException, lambda: box().files.read("nothing"))
    box().commands.run("ln -sf a.txt link")
    assert "link" in [entry.name for entry in box().files.list("/home/user")]


def case_watching() -> None:
    handle = box().files.watch_dir("/home/user")
    box().files.write("w.txt", "1")
    wait_until(lambda: "w.txt" in [event.name for event in handle.get_new_events()])
    handle.stop()


def case_code() -> None:
    assert box().run_code("x = 41; x + 1").text == "42"
    context = box().create_code_context(cwd="/tmp")
    assert box().run_code("import os; os.getcwd()", context=context).text == "/tmp"


async def case_the_asynchronous_client() -> None:
    sandbox = await AsyncSandbox.create(timeout=60, metadata={"age": "none"})
    assert (await sandbox.commands.run("echo hi")).stdout == "hi\n"
    assert (await araised(CommandExitException, sandbox.commands.run("exit 3"))).exit_code == 3
    await sandbox.files.write("a.txt", "1")
    assert await sandbox.files.read("a.txt") == "1"
    await araised(NotFoundException, sandbox.files.read("nothing"))
    seen: asyncio.Queue[Any] = asyncio.Queue()
    handle = await sandbox.files.watch_dir("/home/user", on_event=seen.put_nowait)
    await sandbox.files.write("w.txt", "1")
    assert (await asyncio.wait_for(seen.get(), 10)).name == "w.txt"
    await handle.stop()
    assert (await sandbox.run_code("x = 41; x + 1")).text == "42"
    context = await sandbox.create_code_context(cwd="/tmp")
    assert (await sandbox.run_code("import os; os.getcwd()", context=context)).text == "/tmp"
    assert await sandbox.kill()
    assert not await sandbox.is_running()


def case_a_port_has_an_address() -> None:
    box().files.write("/tmp/web/page", "served")
    box().commands.run("python3 -m http.server 8000 -d /tmp/web", background=True)
    box().commands.run("until curl -sf localhost:8000/page; do sleep 0.1; done")
    assert _get(f"https://{box().get_host(8000)}/page") == b"served"
    error = raised(urllib.error.HTTPError, lambda: _get(f"https://{box().get_host(8001)}/"))
    assert error.code == 502
    error.close()


def case_a_signed_address_names_its_sandbox() -> None:
    box().files.write("s.txt", "s")
    assert _get(box().download_url("s.txt")) == b"s"


def case_listing_and_describing() -> None:
    assert box().sandbox_id in [entry.sandbox_id for entry in Sandbox.list().next_items()]
    assert box().get_info().metadata == {"age": "any"}
    box().set_timeout(200)


if __name__ == "__main__":
    runner.main(globals())
