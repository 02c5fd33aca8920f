"""Methods and options that only the newest Python package has; written for the asynchronous client, run for both."""

from __future__ import annotations

import inspect
import logging
import os
from pathlib import Path
from typing import Any

import e2b
import runner
from calls import fetched, note
from e2b import (
    AsyncSecret,
    AsyncTemplate,
    AsyncVolume,
    GitAuthException,
    InvalidArgumentException,
    NotFoundException,
    SandboxException,
    SandboxQuery,
)
from e2b_code_interpreter import AsyncSandbox
from runner import araised, await_until

SYNC = not inspect.iscoroutinefunction(AsyncSandbox.create)
FLAVOUR = "sync" if SYNC else "async"
LOG = logging.getLogger("x")
ADA = {"author_name": "Ada", "author_email": "ada@example.com"}
AUTH = {"username": "ada", "password": "word"}
REFUSED = "this server does not have that"


async def case_states_have_every_option() -> None:
    lifecycle: Any = {"on_timeout": {"action": "pause", "mode": "full"}, "auto_resume": True}
    box = await AsyncSandbox.create("base", timeout=100, lifecycle=lifecycle)
    await box.files.write("/dev/shm/f", "memory", user="root")
    assert await box.pause(mode="full", strict=True) is True
    assert await AsyncSandbox.pause(box.sandbox_id, mode="full", strict=True) is False
    await box.connect(timeout=100, on_resume="restore")
    assert await box.files.read("/dev/shm/f", user="root") == "memory"
    assert await AsyncSandbox.pause(box.sandbox_id, keep_memory=False) is True
    woken = await AsyncSandbox.connect(box.sandbox_id, timeout=100, on_resume="reboot", logger=LOG)
    assert await woken.files.exists("/dev/shm/f", user="root") is False
    assert await box.pause(keep_memory=True) is True
    await box.connect(timeout=100, on_resume="reboot")
    assert await box.beta_pause(keep_memory=True) is True
    await box.connect(timeout=100)
    assert await box.beta_pause(mode="filesystem") is True
    assert await AsyncSandbox.beta_pause(box.sandbox_id) is False
    await box.kill()
    await araised(NotFoundException, lambda: box.pause())
    await araised(NotFoundException, lambda: AsyncSandbox.pause(box.sandbox_id))
    await araised(NotFoundException, lambda: AsyncSandbox.connect(box.sandbox_id))


async def case_copies_and_snapshots_have_every_option() -> None:
    box = await AsyncSandbox.create("base", timeout=100)
    copies = await AsyncSandbox.fork(box.sandbox_id, count=2, timeout=90, logger=LOG) + await box.fork(timeout=90)
    assert len({copy.sandbox_id for copy in copies} | {box.sandbox_id}) == 4
    for copy in copies:
        await copy.kill()
    names = [f"{FLAVOUR}-one", f"{FLAVOUR}-two"]
    taken = [
        await AsyncSandbox.create_snapshot(box.sandbox_id, name=names[0], mode="full"),
        await box.create_snapshot(name=names[1], mode="filesystem"),
    ]
    ids = [snapshot.snapshot_id for snapshot in taken]
    listed = AsyncSandbox.list_snapshots(sandbox_id=box.sandbox_id, limit=1)
    first = await listed.next_items()
    second = AsyncSandbox.list_snapshots(sandbox_id=box.sandbox_id, limit=1, next_token=listed.next_token)
    assert {entry.snapshot_id for entry in first + await second.next_items()} == set(ids)
    pages = box.list_snapshots(limit=1)
    first = await pages.next_items()
    rest = box.list_snapshots(limit=1, next_token=pages.next_token)
    assert {entry.snapshot_id for entry in first + await rest.next_items()} == set(ids)
    named = await AsyncSandbox.list_snapshots(name=names[0]).next_items()
    assert [entry.snapshot_id for entry in named] == ids[:1]
    for snapshot in ids:
        assert await AsyncSandbox.delete_snapshot(snapshot) is True
    await araised(SandboxException, lambda: box.fork(count=21))
    await box.kill()
    await araised(NotFoundException, lambda: box.create_snapshot())


async def case_lists_have_every_option() -> None:
    mine = {"listed": FLAVOUR}
    made = [await AsyncSandbox.create("base", timeout=100, metadata=mine) for _ in range(3)]
    begun = (await made[0].get_info()).started_at
    query = SandboxQuery(metadata=mine, template="base", started_after=begun)
    pages = AsyncSandbox.list(query=query, order="asc", limit=1)
    seen = [entry.sandbox_id for entry in await pages.next_items()]
    await made[0].kill()  # what goes meanwhile hides nothing that stays
    while pages.has_next:
        seen += [entry.sandbox_id for entry in await pages.next_items()]
    assert seen == [box.sandbox_id for box in made]
    for box in made[1:]:
        await box.kill()


async def case_a_network_has_every_option() -> None:
    options: Any = {
        "allow_out": ["192.0.2.7", "example.com"],
        "deny_out": ["0.0.0.0/0"],
        "allow_public_traffic": False,
        "mask_request_host": "app.example:${PORT}",
        "rules": {"example.com": [{"transform": {"headers": {"X-Team": "blue"}}}]},
    }
    box = await AsyncSandbox.create("base", timeout=100, network=options)
    assert box.traffic_access_token
    found = (await box.get_info()).network
    assert (found["allow_out"], found["allow_public_traffic"]) == (["192.0.2.7", "example.com"], False)
    await box.update_network({"allow_out": ["192.0.2.8"], "deny_out": ["192.0.2.0/24"], "rules": options["rules"]})
    found = await box.get_info()
    assert found.allow_internet_access is True
    assert (found.network["allow_out"], found.network["deny_out"]) == (["192.0.2.8"], ["192.0.2.0/24"])
    assert found.network["rules"] == options["rules"]
    again: Any = {name: found.network[name] for name in ("allow_out", "deny_out", "rules")}
    await box.update_network(again)
    assert (await box.get_info()).network == found.network
    error = await araised(SandboxException, lambda: box.update_network({"allow_out": ["example.com"]}))
    assert "ALL_TRAFFIC" in str(error)
    await box.update_network({"allow_internet_access": False})
    assert (await box.get_info()).allow_internet_access is False
    await AsyncSandbox.update_network(box.sandbox_id, {})
    assert (await box.get_info()).allow_internet_access is True
    await box.kill()
    await araised(NotFoundException, lambda: AsyncSandbox.update_network(box.sandbox_id, {}))


async def case_what_cannot_be_is_refused_in_words() -> None:
    mine: Any = {"metadata": {"refused": FLAVOUR}}
    box = await AsyncSandbox.create("base", timeout=100, **mine)
    socks: Any = {"egress_proxy": {"address": "192.0.2.1:1080", "username": "a", "password": "b"}}
    names: Any = {"dns_servers": ["192.0.2.1"]}
    for network in (socks, names, {"https_ports": [8443]}):
        error = await araised(SandboxException, lambda network=network: AsyncSandbox.create(network=network, **mine))
        assert REFUSED in str(error), error
    for network in (socks, names):
        error = await araised(SandboxException, lambda network=network: box.update_network(network))
        assert REFUSED in str(error), error
    token = AsyncSecret.iam_token(audience="a", token_type="JWT-SVID")
    both: list[Any] = [{"iam": {"tokens": {"t": token}}}, {"mcp": {"time": {}}}]
    for options in both:
        error = await araised(SandboxException, lambda options=options: AsyncSandbox.create(**options, **mine))
        assert REFUSED in str(error), error
    pages = AsyncSandbox.list(query=SandboxQuery(**mine))
    assert [entry.sandbox_id for entry in await pages.next_items()] == [
        box.sandbox_id
    ]  # what is refused leaves nothing
    await box.kill()


async def case_input_is_streamed() -> None:
    box = await AsyncSandbox.create("base", timeout=100)
    running = await box.commands.run("cat", background=True, stdin=True, retain_output=True)
    joined = await box.commands.connect(running.pid, retain_output=False)
    terminal = await box.pty.create(e2b.PtySize(rows=20, cols=70), **({} if SYNC else {"on_data": print}))
    again = await box.pty.connect(terminal.pid, timeout=30, **({} if SYNC else {"on_data": print}))
    if SYNC:
        box.commands.stream_input(running.pid, iter(["one\n", b"two\n"]), timeout=30)
        box.pty.stream_input(terminal.pid, iter([b"exit\n"]), timeout=30)
    else:
        given = box.commands.stream_input(running.pid, timeout=30)
        await given.send("one\n")
        await given.send(b"two\n")
        await given.close()
        async with box.pty.stream_input(terminal.pid, timeout=30) as typed:
            await typed.send(b"exit\n")
    await again.wait()
    await running.send_stdin("three\n")
    await box.commands.send_stdin(running.pid, "four\n")
    await running.close_stdin()
    assert (await running.wait()).stdout == "one\ntwo\nthree\nfour\n"
    await joined.wait()
    other = await box.commands.run("cat", background=True, stdin=True, retain_output=False)
    await box.commands.close_stdin(other.pid)
    await other.wait()
    await box.kill()


async def case_files_have_every_new_option() -> None:
    box = await AsyncSandbox.create("base", timeout=100)
    files = box.files
    big = b"0123456789" * 50_000
    options: Any = {"gzip": True, "use_octet_stream": True, "metadata": {"kind": "test"}, "user": "root"}
    await files.write("/root/one", big, **options)
    await files.write_files([{"path": "/root/two", "data": big}], **options)
    for name in ("/root/one", "/root/two"):
        assert (await files.get_info(name, user="root")).metadata == {"kind": "test"}
        assert bytes(await files.read(name, format="bytes", gzip=True, user="root")) == big
    parts = await files.read("/root/one", format="stream", stream_idle_timeout=30, user="root")
    assert b"".join([part async for part in parts]) == big
    await files.write_files([{"path": "/root/three", "data": "3"}], user="root", use_octet_stream=False)
    watching: Any = {"include_entry": True, "allow_network_mounts": True, "recursive": True}
    seen: list[Any] = []
    if SYNC:
        handle = files.watch_dir("/tmp", **watching)
        files.write("/tmp/f", "1")
        runner.wait_until(lambda: note(seen, handle.get_new_events()))
    else:
        handle = await files.watch_dir("/tmp", on_event=seen.append, **watching)
        await files.write("/tmp/f", "1")
        await await_until(lambda: seen)
    assert seen[0].entry.path == "/tmp/f"
    await handle.stop()
    await box.kill()


async def case_contexts() -> None:
    box = await AsyncSandbox.create(timeout=100)
    context = await box.create_code_context()
    await box.run_code("x = 1", context=context)
    assert context.id in [entry.id for entry in await box.list_code_contexts()]
    await box.restart_code_context(context)
    assert (await box.run_code("x", context=context)).error.name == "NameError"
    await box.remove_code_context(context)
    assert context.id not in [entry.id for entry in await box.list_code_contexts()]
    await box.kill()


async def case_git_has_every_option() -> None:
    box = await AsyncSandbox.create("base", timeout=100)
    git = box.git
    every: Any = {"envs": {"LANG": "C"}, "user": "user", "cwd": "/home/user", "timeout": 60, "request_timeout": 60}
    await git.init("/home/user/r", bare=False, initial_branch="main", **every)
    place: Any = {"scope": "local", "path": "/home/user/r", **every}
    await git.configure_user("Ada", "ada@example.com", **place)
    await git.set_config("core.editor", "true", **place)
    assert await git.get_config("core.editor", **place) == "true"
    await box.files.write("r/a", "1")
    await box.files.write("r/b", "1")
    await git.add("/home/user/r", files=["a"], all=False, **every)
    assert {entry.name for entry in (await git.status("/home/user/r", **every)).file_status} == {"a", "b"}
    await git.add("/home/user/r", all=True, **every)
    await git.commit("/home/user/r", "first", **ADA, **every)
    await git.commit("/home/user/r", "empty", allow_empty=True, **every)
    await box.files.write("r/a", "2")
    await git.add("/home/user/r", **every)
    await git.restore("/home/user/r", paths=["a"], staged=True, worktree=True, source="HEAD~1", **every)
    assert await box.files.read("r/a") == "1"
    await box.files.write("r/a", "3")
    await git.add("/home/user/r")
    await git.reset("/home/user/r", paths=["a"], **every)
    assert not (await git.status("/home/user/r")).has_staged
    await git.reset("/home/user/r", mode="hard", target="HEAD~1", **every)
    assert await box.files.read("r/a") == "1"
    await git.create_branch("/home/user/r", "side", **every)
    await git.checkout_branch("/home/user/r", "main", **every)
    assert set((await git.branches("/home/user/r", **every)).branches) == {"main", "side"}
    await git.delete_branch("/home/user/r", "side", force=True, **every)
    await box.kill()


async def case_git_has_passwords() -> None:
    """A server of git's own inside, which lets nobody in without the name and the password."""
    box = await AsyncSandbox.create("base", timeout=100)
    git = box.git
    await git.init("/home/user/served/far.git", bare=True, initial_branch="main")
    await box.files.write("serve.py", (Path(__file__).parent / "gitserver.py").read_text())
    await box.commands.run("python3 serve.py 9418 /home/user/served ada word", background=True)
    await box.commands.run("until curl -so /dev/null localhost:9418; do sleep 0.05; done")
    url = "http://localhost:9418/far.git"
    await git.init("/home/user/near", initial_branch="main")
    await git.commit("/home/user/near", "one", allow_empty=True, **ADA)
    await araised(GitAuthException, lambda: git.clone(url, path="/home/user/none"))
    wrong = {"username": "ada", "password": "wrong"}
    await araised(GitAuthException, lambda: git.clone(url, path="/home/user/none", **wrong))
    await git.remote_add("/home/user/near", "origin", url, overwrite=True)
    remote: Any = {"remote": "origin", "branch": "main"}
    await araised(GitAuthException, lambda: git.push("/home/user/near", **remote))
    await araised(InvalidArgumentException, lambda: git.push("/home/user/near", password="word"))
    await git.push("/home/user/near", set_upstream=False, **remote, **AUTH)
    assert "word" not in (await git.remote_get("/home/user/near", "origin"))  # the password is not left behind
    clone: Any = {"path": "/home/user/kept", "branch": "main", "depth": 1}
    await git.clone(url, dangerously_store_credentials=True, **clone, **AUTH)
    assert "word" in await box.files.read("/home/user/kept/.git/config")
    await git.clone(url, path="/home/user/copy", **AUTH)
    assert "word" not in await box.files.read("/home/user/copy/.git/config")
    await git.commit("/home/user/near", "two", allow_empty=True, **ADA)
    await git.push("/home/user/near", **remote, **AUTH)
    await araised(GitAuthException, lambda: git.pull("/home/user/copy", **remote))
    await git.pull("/home/user/copy", **remote, **AUTH)
    logged = await box.commands.run("git log --format=%s", cwd="/home/user/copy")
    assert logged.stdout == "two\none\n"
    await git.dangerously_authenticate("ada", "word", host="localhost:9418", protocol="http")
    await git.remote_add("/home/user/near", "other", url, fetch=True)
    await git.pull("/home/user/copy", **remote)
    await box.kill()


async def case_volumes_have_every_option() -> None:
    volume = await AsyncVolume.create(f"calls-{FLAVOUR}")
    assert (volume.name, bool(volume.token)) == (f"calls-{FLAVOUR}", True)
    assert (await AsyncVolume.get_info(volume.volume_id)).name == volume.name
    assert volume.volume_id in [entry.volume_id for entry in await AsyncVolume.list()]
    again = await AsyncVolume.connect(volume.volume_id)
    owned: Any = {"uid": 7, "gid": 8, "mode": 0o640}
    made = await again.make_dir("/d/e", force=True, **owned)
    assert (made.uid, made.gid, made.mode) == (7, 8, 0o640)
    await again.write_file("/d/f", "1", force=True, **owned)
    assert (await again.get_info("/d/f")).gid == 8
    changed = await again.update_metadata("/d/f", uid=9, gid=10, mode=0o600)
    assert (changed.uid, changed.gid, changed.mode) == (9, 10, 0o600)
    assert await again.read_file("/d/f", format="text") == "1"
    parts = await again.read_file("/d/f", format="stream", stream_idle_timeout=30)
    assert b"".join([part async for part in parts]) == b"1"
    assert [entry.path for entry in await again.list("/", depth=2)] == ["/d", "/d/e", "/d/f"]
    assert await again.exists("/d/f") is True
    box = await AsyncSandbox.create("base", timeout=100, volume_mounts={"/data": volume})
    assert (await box.commands.run("cat /data/d/f", user="root")).stdout == "1"
    await box.kill()
    await again.remove("/d")
    assert await AsyncVolume.destroy(volume.volume_id) is True
    await araised(NotFoundException, lambda: AsyncVolume.get_info(volume.volume_id))


async def case_secrets_have_every_option() -> None:
    names = [f"calls-{FLAVOUR}-{number}" for number in range(2)]
    for name in names:
        await AsyncSecret.create(name, "v", metadata={"n": name})
    assert (await AsyncSecret.get_info(names[0])).metadata == {"n": names[0]}
    assert (await AsyncSecret.update(names[0], "w", metadata={"n": "2"})).version == 2
    assert await AsyncSecret.exists(names[0]) is True
    pages = AsyncSecret.list(limit=1)
    seen = [entry.name for entry in await pages.next_items()]
    rest = AsyncSecret.list(limit=100, next_token=pages.next_token)
    seen += [entry.name for entry in await rest.next_items()]
    assert set(names) <= set(seen)
    assert names[0] in AsyncSecret.fill(names[0])
    for name in names:
        assert await AsyncSecret.destroy(name) is True
    assert await AsyncSecret.destroy(names[0]) is False


async def case_templates_have_names_and_are_not_built() -> None:
    assert await AsyncTemplate.exists("base") is True
    assert await AsyncTemplate.alias_exists("code-interpreter-v1") is True
    assert await AsyncTemplate.alias_exists("nothing-like-it") is False
    assert [tag.tag for tag in await AsyncTemplate.get_tags("base")] == ["default"]
    await araised(Exception, lambda: AsyncTemplate.get_tags("nothing-like-it"))
    template = AsyncTemplate().from_base_image()
    options: Any = {"tags": ["v1"], "min_free_disk_mb": 100}
    for build in (AsyncTemplate.build, AsyncTemplate.build_in_background):
        error = await araised(Exception, lambda build=build: build(template, name="mine", **options))
        assert "cannot be built" in str(error), error
    for call in (AsyncTemplate.assign_tags, AsyncTemplate.remove_tags):
        error = await araised(Exception, lambda call=call: call("base", "mine"))
        assert "cannot be built" in str(error), error


async def case_a_client_has_options_of_its_own() -> None:
    box = await AsyncSandbox.create("base", timeout=100)
    client = e2b.E2B(
        api_key=os.environ["E2B_API_KEY"],
        api_url=os.environ["E2B_API_URL"],
        sandbox_url=os.environ["E2B_SANDBOX_URL"],
        proxy=os.environ["PROXY_URL"],
    )
    before = len(fetched(os.environ["PROXY"] + "/seen").splitlines())
    through = await client.AsyncSandbox.connect(box.sandbox_id)
    assert (await through.commands.run("echo 1")).stdout == "1\n"
    assert await client.AsyncTemplate.exists("base") is True
    assert len(fetched(os.environ["PROXY"] + "/seen").splitlines()) > before
    assert box.envd_direct_url
    await box.kill()


if __name__ == "__main__":
    runner.main_of_both(globals())
