"""Methods and options of Python clients of any age, one by one; written for the asynchronous one, run for both.

Where the two differ by more than waiting, SYNC tells which it is. NEW tells whether it is the newest package.
"""

from __future__ import annotations

import inspect
import os
import ssl
import urllib.request
from datetime import UTC, datetime, timedelta
from typing import Any

import e2b
import runner
from e2b import NotFoundException, PtySize, SandboxException, SandboxQuery, SandboxState
from e2b_code_interpreter import AsyncSandbox
from runner import araised, await_until

SYNC = not inspect.iscoroutinefunction(AsyncSandbox.create)
NEW = hasattr(e2b, "Volume")


def note(seen: list[Any], more: list[Any]) -> list[Any]:
    """Those seen so far and the new ones."""
    seen += more
    return seen


def fetched(address: str, body: bytes | None = None, **headers: str) -> bytes:
    trusted = os.environ.get("SSL_CERT_FILE")
    context = ssl.create_default_context(cafile=trusted) if trusted and address.startswith("https") else None
    with urllib.request.urlopen(urllib.request.Request(address, body, headers), context=context) as answer:
        return bytes(answer.read())


async def case_a_sandbox_is_made_with_every_option() -> None:
    options: dict[str, Any] = {"secure": NEW, "allow_internet_access": False}  # unlike the defaults
    if NEW:
        options |= {"logger": __import__("logging").getLogger("x"), "idempotency_key": f"once-{SYNC}".lower()}
    box = await AsyncSandbox.create("base", timeout=100, metadata={"a": "1"}, envs={"B": "2"}, **options)
    assert (await box.commands.run("echo $B")).stdout == "2\n"
    assert (await AsyncSandbox.get_info(box.sandbox_id)).metadata == {"a": "1"}
    assert (await box.get_info()).sandbox_id == box.sandbox_id
    assert (await box.commands.run("curl -sm 5 http://192.0.2.1 || echo closed")).stdout == "closed\n"
    assert await box.is_running()
    await box.set_timeout(200)
    await AsyncSandbox.set_timeout(box.sandbox_id, 300)
    left = (await box.get_info()).end_at - datetime.now(UTC)
    assert timedelta(seconds=200) < left <= timedelta(seconds=300)
    again = await AsyncSandbox.connect(box.sandbox_id, timeout=310)
    assert (await again.connect(timeout=320)).sandbox_id == box.sandbox_id
    assert (await box.get_info()).end_at - datetime.now(UTC) > timedelta(seconds=310)
    assert box.sandbox_domain in box.get_host(8000)
    assert box.connection_config.api_key
    assert box.envd_api_url
    assert await box.kill() is True
    assert await AsyncSandbox.kill(box.sandbox_id) is False


async def case_metrics_have_a_range() -> None:
    box = await AsyncSandbox.create("base", timeout=100)
    now = datetime.now(UTC)
    hour = timedelta(hours=1)
    assert await await_until(lambda: box.get_metrics())
    assert await box.get_metrics(start=now - hour, end=now + hour)
    assert await AsyncSandbox.get_metrics(box.sandbox_id, start=now - hour, end=now + hour)
    assert await box.get_metrics(end=now - hour) == []
    assert await AsyncSandbox.get_metrics(box.sandbox_id, start=now + hour) == []
    await box.kill()


async def case_lists_have_pages() -> None:
    mine = {"pages": str(SYNC)}
    made = [await AsyncSandbox.create("base", timeout=100, metadata=mine) for _ in range(2)]
    query = SandboxQuery(metadata=mine, state=[SandboxState.RUNNING])
    pages = AsyncSandbox.list(query=query, limit=1)
    first = await pages.next_items()
    rest = AsyncSandbox.list(query=query, limit=1, next_token=pages.next_token)
    seen = [entry.sandbox_id for entry in first + await rest.next_items()]
    assert (set(seen), rest.has_next) == ({box.sandbox_id for box in made}, False)
    for box in made:
        await box.kill()


async def case_a_sandbox_sleeps() -> None:
    """The first packages could pause only under another name."""
    make = AsyncSandbox.create if NEW else AsyncSandbox.beta_create
    options: dict[str, Any] = {} if NEW else {"auto_pause": True}
    options |= {"metadata": {"s": "1"}, "envs": {"B": "2"}, "secure": NEW, "allow_internet_access": False}
    box = await make("base", timeout=100, **options)
    await box.beta_pause()
    assert (await AsyncSandbox.get_info(box.sandbox_id)).state == SandboxState.PAUSED
    assert await box.is_running() is False
    await box.connect(timeout=100)
    assert (await box.commands.run("echo $B")).stdout == "2\n"
    await AsyncSandbox.beta_pause(box.sandbox_id)
    assert await AsyncSandbox.kill(box.sandbox_id) is True


async def case_there_is_no_gateway_for_tools() -> None:
    makers = [AsyncSandbox.create] if NEW else [AsyncSandbox.create, AsyncSandbox.beta_create]
    for make in makers:
        error = await araised(SandboxException, lambda make=make: make(mcp={"time": {}}))
        assert "does not have that" in str(error), error
    box = await AsyncSandbox.create("base", timeout=100)
    assert box.get_mcp_url().startswith(f"https://50005-{box.sandbox_id}.")
    await araised(NotFoundException, lambda: box.get_mcp_token())
    await box.kill()


async def case_addresses_are_signed_for_a_user() -> None:
    box = await AsyncSandbox.create("base", timeout=100)
    await box.files.write("/root/f", "root's", user="root")
    down = box.download_url("/root/f", user="root", use_signature_expiration=60)
    assert fetched(down) == b"root's"
    boundary = "b0"
    body = f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="u"\r\n\r\nup\r\n--{boundary}--\r\n'
    kind = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
    fetched(box.upload_url("/root/g", user="root", use_signature_expiration=60), body.encode(), **kind)
    assert (await box.commands.run("cat /root/g", user="root")).stdout == "up"
    late = box.download_url("/root/f", user="root", use_signature_expiration=-60)
    error = runner.raised(urllib.error.HTTPError, lambda: fetched(late))
    assert (error.code, b"signature is already expired" in error.read()) == (401, True)
    error.close()
    await box.kill()


async def case_a_command_has_every_option() -> None:
    box = await AsyncSandbox.create("base", timeout=100)
    out: list[str] = []
    err: list[str] = []
    line = "echo $A; pwd; whoami; echo e >&2"
    listen: dict[str, Any] = {"on_stdout": out.append, "on_stderr": err.append}
    done = await box.commands.run(line, envs={"A": "1"}, cwd="/tmp", user="root", timeout=30, **listen)
    assert (done.stdout, "".join(out), "".join(err), done.stderr) == (
        "1\n/tmp\nroot\n",
        "1\n/tmp\nroot\n",
        "e\n",
        "e\n",
    )
    running = await box.commands.run("tee /tmp/heard", background=True, stdin=True)  # its output first, then the file
    assert running.pid in [entry.pid for entry in await box.commands.list()]
    await box.commands.send_stdin(running.pid, "typed\n")
    heard: list[str] = []
    more: dict[str, Any] = {} if SYNC else {"on_stdout": heard.append, "on_stderr": heard.append}
    joined = await box.commands.connect(running.pid, timeout=30, **more)
    await box.commands.send_stdin(running.pid, "again\n")
    await box.commands.run("until grep again /tmp/heard; do sleep 0.05; done", timeout=20)
    assert await box.commands.kill(running.pid) is True
    ended: dict[str, Any] = {"on_stdout": heard.append, "on_stderr": heard.append} if SYNC else {}
    error = await araised(e2b.CommandExitException, lambda: joined.wait(**ended))
    assert (error.exit_code, error.error) == (-1, "signal: killed")
    assert "again\n" in "".join(heard)
    await box.kill()


async def case_a_handle_tells_and_ends() -> None:
    box = await AsyncSandbox.create("base", timeout=100)
    running = await box.commands.run("echo o; echo e >&2; exit 3", background=True)
    error = await araised(e2b.CommandExitException, lambda: running.wait())
    assert (error.stdout, error.stderr, error.exit_code) == ("o\n", "e\n", 3)
    if not SYNC:
        assert (running.stdout, running.stderr, running.exit_code) == ("o\n", "e\n", 3)
        assert running.error == "exit status 3"
    left = await box.commands.run("sleep 100", background=True)
    await left.disconnect()
    assert left.pid in [entry.pid for entry in await box.commands.list()]  # who leaves does not end it
    again = await box.commands.connect(left.pid)
    assert await again.kill() is True
    await await_until(lambda: gone(box, left.pid))
    await box.kill()


async def gone(box: Any, pid: int) -> bool:
    return pid not in [entry.pid for entry in await box.commands.list()]


async def case_a_terminal_has_every_option() -> None:
    box = await AsyncSandbox.create("base", timeout=100)
    seen: list[bytes] = []
    heard: dict[str, Any] = {} if SYNC else {"on_data": seen.append}
    terminal = await box.pty.create(
        PtySize(rows=20, cols=70), user="root", cwd="/tmp", envs={"WHO": "me"}, timeout=30, **heard
    )
    await box.pty.resize(terminal.pid, PtySize(rows=31, cols=101))
    await box.pty.send_stdin(terminal.pid, b"stty size; echo $WHO-$(whoami)-$(pwd); exit\n")
    ended: dict[str, Any] = {"on_pty": seen.append} if SYNC else {}
    await terminal.wait(**ended)
    assert b"31 101" in b"".join(seen)
    assert b"me-root-/tmp" in b"".join(seen)
    other = await box.pty.create(PtySize(rows=20, cols=70), **heard)
    assert await box.pty.kill(other.pid) is True
    await araised(e2b.CommandExitException, lambda: other.wait())
    assert await box.pty.kill(other.pid) is False
    await box.kill()


async def case_files_have_every_option() -> None:
    box = await AsyncSandbox.create("base", timeout=100)
    files = box.files
    assert await files.make_dir("/root/d/e", user="root") is True
    await files.write("/root/d/one", "1", user="root")
    await files.write_files([{"path": "/root/d/two", "data": b"2"}], user="root")
    assert await files.read("/root/d/one", user="root", format="text") == "1"
    assert bytes(await files.read("/root/d/two", user="root", format="bytes")) == b"2"
    assert await files.exists("/root/d/one", user="root") is True
    assert (await files.get_info("/root/d/one", user="root")).size == 1
    deep = await files.list("/root", depth=2, user="root")
    assert {entry.path for entry in deep} >= {"/root/d", "/root/d/e", "/root/d/one", "/root/d/two"}
    assert "/root/d/one" not in {entry.path for entry in await files.list("/root", depth=1, user="root")}
    assert (await files.rename("/root/d/one", "/root/d/three", user="root")).name == "three"
    await files.remove("/root/d/three", user="root")
    assert await files.exists("/root/d/three", user="root") is False
    await box.kill()


async def case_a_folder_is_watched_with_every_option() -> None:
    box = await AsyncSandbox.create("base", timeout=100)
    await box.files.make_dir("/root/w/below", user="root")
    seen: list[Any] = []
    if SYNC:
        handle = box.files.watch_dir("/root/w", user="root", recursive=True)
        box.files.write("/root/w/below/f", "1", user="root")
        runner.wait_until(lambda: note(seen, handle.get_new_events()))
        handle.stop()
    else:
        ends: list[Any] = []
        handle = await box.files.watch_dir(
            "/root/w", on_event=seen.append, on_exit=ends.append, user="root", recursive=True, timeout=0
        )
        await box.files.write("/root/w/below/f", "1", user="root")
        await await_until(lambda: seen)
        await box.kill()
        await await_until(lambda: ends)  # what was watched is gone
    assert seen[0].name == "below/f"
    await box.kill()


async def case_code_has_every_option() -> None:
    box = await AsyncSandbox.create(timeout=100)
    out: list[str] = []
    err: list[str] = []
    results: list[Any] = []
    errors: list[Any] = []
    listen: dict[str, Any] = {
        "on_stdout": lambda message: out.append(message.line),
        "on_stderr": lambda message: err.append(message.line),
        "on_result": results.append,
        "on_error": errors.append,
    }
    code = "import os, sys\nprint(os.environ['Q'])\nprint('e', file=sys.stderr)\n41 + 1"
    await box.run_code(code, envs={"Q": "7"}, timeout=60, **listen)
    assert (out, err, results[0].text, errors) == (["7\n"], ["e\n"], "42", [])
    await box.run_code("1 / 0", **listen)
    assert errors[0].name == "ZeroDivisionError"
    assert (await box.run_code("echo $((40 + 2))", language="bash")).logs.stdout == ["42\n"]
    context = await box.create_code_context(cwd="/tmp", language="python")
    assert (await box.run_code("import os; os.getcwd()", context=context)).text == "/tmp"
    await box.kill()


async def case_a_connection_has_every_option() -> None:
    """The proxy is a process of its own; it says which requests went through it."""
    domain = os.environ.get("E2B_DOMAIN", "sandboxes.test")
    options: dict[str, Any] = {"api_key": os.environ["E2B_API_KEY"], "domain": domain, "request_timeout": 30.0}
    options |= {"headers": {"X-Own": "1"}}
    if "E2B_API_URL" in os.environ:
        options |= {"api_url": os.environ["E2B_API_URL"], "sandbox_url": os.environ["E2B_SANDBOX_URL"]}
    else:
        options |= {"api_url": f"https://api.{domain}"}
    if NEW:
        options |= {"api_headers": {"X-Api": "1"}, "retries": 1, "http_version": "1.1", "validate_api_key": True}
        options |= {"sandbox_url": os.environ.get("E2B_SANDBOX_URL")}
    box = await AsyncSandbox.create("base", timeout=100, **options)
    assert (await box.commands.run("echo 1", request_timeout=20)).stdout == "1\n"
    before = fetched(os.environ["PROXY"] + "/seen").count(b"\n")
    through = await AsyncSandbox.connect(box.sandbox_id, proxy=os.environ["PROXY_URL"], **options)
    assert (await through.commands.run("echo 2")).stdout == "2\n"
    await through.files.write("f", "3")
    assert await through.files.read("f") == "3"
    passed = fetched(os.environ["PROXY"] + "/seen").decode().splitlines()[before:]
    assert len(passed) >= 2, passed
    await box.kill()


async def case_a_proxy_that_refuses_is_not_gone_round() -> None:
    closed = os.environ["PROXY_URL"].replace("ada:word", "ada:wrong")
    before = fetched(os.environ["PROXY"] + "/seen")
    await araised(Exception, lambda: AsyncSandbox.create("base", timeout=60, proxy=closed))
    assert fetched(os.environ["PROXY"] + "/seen") == before


async def case_templates_are_described_and_not_built() -> None:
    template = e2b.AsyncTemplate().from_image("python").run_cmd("true")
    assert "RUN true" in e2b.AsyncTemplate.to_dockerfile(template)
    assert "python" in e2b.AsyncTemplate.to_json(template)
    options: dict[str, Any] = {
        "cpu_count": 1,
        "memory_mb": 512,
        "skip_cache": True,
        "on_build_logs": lambda entry: None,
        "api_key": os.environ["E2B_API_KEY"],
        "domain": os.environ.get("E2B_DOMAIN", "sandboxes.test"),
    }
    for build in (e2b.AsyncTemplate.build, e2b.AsyncTemplate.build_in_background):
        error = await araised(Exception, lambda build=build: build(template, alias="mine", **options))
        assert "cannot be built" in str(error), error
    kind = getattr(e2b, "BuildInfo", None) or __import__("e2b.template.types", fromlist=["BuildInfo"]).BuildInfo
    info = kind(**{name: "base" for name in inspect.signature(kind).parameters if name != "tags"})
    more = {name: options[name] for name in ("api_key", "domain")}
    error = await araised(Exception, lambda: e2b.AsyncTemplate.get_build_status(info, logs_offset=1, **more))
    assert "cannot be built" in str(error), error


if __name__ == "__main__":
    runner.main_of_both(globals())
