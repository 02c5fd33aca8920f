"""Pause, resume, fork, snapshots, volumes, networks and templates with the Python client."""

from __future__ import annotations

from typing import Any

import runner
from e2b import (
    SandboxException,
    SandboxNotFoundException,
    SandboxNotRunningException,
    SandboxQuery,
    SandboxState,
    Template,
    Volume,
)
from e2b_code_interpreter import Sandbox
from runner import raised, wait_until


def case_a_paused_sandbox_keeps_memory_and_files() -> None:
    sandbox = Sandbox.create(timeout=120)
    sandbox.run_code("x = 5")
    sandbox.files.write("f", "1")
    assert sandbox.pause() is True
    assert sandbox.pause() is False
    assert sandbox.is_running() is False
    assert Sandbox.get_info(sandbox.sandbox_id).state == SandboxState.PAUSED
    raised(SandboxNotRunningException, lambda: sandbox.commands.run("true"))
    paused = Sandbox.list(query=SandboxQuery(state=[SandboxState.PAUSED])).next_items()
    assert [entry.sandbox_id for entry in paused] == [sandbox.sandbox_id]
    again = Sandbox.connect(sandbox.sandbox_id)
    assert again.run_code("x").text == "5"
    assert again.files.read("f") == "1"
    assert again.kill() is True


def case_a_watcher_outlives_a_pause() -> None:
    sandbox = Sandbox.create("base", timeout=60)
    watcher = sandbox.files.watch_dir("/home/user")
    sandbox.files.write("before", "1")
    wait_until(watcher.get_new_events)
    sandbox.pause()
    sandbox.connect()
    watcher.get_new_events()
    sandbox.files.write("after", "1")
    wait_until(lambda: any(event.name == "after" for event in watcher.get_new_events()))
    sandbox.kill()


def case_a_paused_sandbox_boots_from_its_disk_if_asked() -> None:
    sandbox = Sandbox.create("base", timeout=60)
    sandbox.commands.run("sleep 1000", background=True)
    sandbox.files.write("f", "kept")
    sandbox.pause()
    again = Sandbox.connect(sandbox.sandbox_id, on_resume="reboot")
    assert again.files.read("f") == "kept"
    assert again.commands.list() == []
    again.kill()


def case_a_paused_sandbox_can_be_killed() -> None:
    sandbox = Sandbox.create("base", timeout=60)
    sandbox.pause()
    assert sandbox.kill() is True
    assert sandbox.kill() is False


def case_a_sandbox_that_pauses_at_its_deadline_wakes_for_a_call() -> None:
    sandbox = Sandbox.create("base", timeout=1, lifecycle={"on_timeout": "pause", "auto_resume": True})
    sandbox.commands.run("echo 1 > f")
    wait_until(lambda: Sandbox.get_info(sandbox.sandbox_id).state == SandboxState.PAUSED)
    assert sandbox.commands.run("cat f").stdout == "1\n"
    sandbox.kill()


def case_a_sandbox_can_pause_without_its_memory_at_its_deadline() -> None:
    lifecycle: Any = {"on_timeout": {"action": "pause", "mode": "filesystem"}}
    sandbox = Sandbox.create("base", timeout=1, lifecycle=lifecycle)
    sandbox.commands.run("echo 1 > f; touch /dev/shm/in-memory")
    wait_until(lambda: Sandbox.get_info(sandbox.sandbox_id).state == SandboxState.PAUSED)
    again = Sandbox.connect(sandbox.sandbox_id, timeout=60)
    assert again.commands.run("cat f; ls /dev/shm").stdout == "1\n"
    again.kill()


def case_a_timeout_of_nothing_does_what_the_deadline_would() -> None:
    lifecycle: Any = {"on_timeout": "pause"}
    sandbox = Sandbox.create("base", timeout=60, lifecycle=lifecycle)
    sandbox.files.write("f", "kept")
    sandbox.set_timeout(0)
    assert Sandbox.get_info(sandbox.sandbox_id).state == SandboxState.PAUSED
    for seconds in (0, 60):
        raised(SandboxNotFoundException, lambda seconds=seconds: sandbox.set_timeout(seconds))
    again = Sandbox.connect(sandbox.sandbox_id, timeout=60)
    assert again.files.read("f") == "kept"
    again.kill()
    other = Sandbox.create("base", timeout=60)
    other.set_timeout(0)
    raised(SandboxNotFoundException, lambda: other.get_info())


def case_forks_go_on_apart() -> None:
    sandbox = Sandbox.create("base", timeout=120)
    sandbox.files.write("f", "before")
    first, second = sandbox.fork(count=2)
    first.files.write("f", "changed")
    assert (second.files.read("f"), sandbox.files.read("f")) == ("before", "before")
    assert len({first.sandbox_id, second.sandbox_id, sandbox.sandbox_id}) == 3
    for one in (first, second, sandbox):
        one.kill()


def case_a_snapshot_is_a_template() -> None:
    sandbox = Sandbox.create("base", timeout=120)
    sandbox.files.write("f", "kept")
    taken = sandbox.create_snapshot()
    assert taken.snapshot_id in {entry.snapshot_id for entry in sandbox.list_snapshots().next_items()}
    copy = Sandbox.create(taken.snapshot_id, timeout=60)
    assert copy.files.read("f") == "kept"
    assert copy.get_info().template_id == copy.commands.run("printf $E2B_TEMPLATE_ID").stdout == taken.snapshot_id
    listed = Sandbox.list(query=SandboxQuery(template=taken.snapshot_id)).next_items()
    assert [entry.sandbox_id for entry in listed] == [copy.sandbox_id]
    assert Template.exists(taken.snapshot_id) is True
    copy.kill()
    sandbox.kill()
    assert Sandbox.delete_snapshot(taken.snapshot_id) is True
    assert Sandbox.delete_snapshot(taken.snapshot_id) is False


def case_a_volume_outlives_its_sandboxes() -> None:
    volume = Volume.create("kept")
    first = Sandbox.create("base", timeout=60, volume_mounts={"/data": volume})
    first.commands.run("echo 1 > /data/f")
    assert first.get_info().volume_mounts == [{"name": "kept", "path": "/data"}]
    first.kill()
    second = Sandbox.create("base", timeout=60, volume_mounts={"/data": "kept"})
    assert second.commands.run("cat /data/f").stdout == "1\n"
    second.kill()
    assert [entry.name for entry in Volume.list()] == ["kept"]
    assert Volume.destroy(volume.volume_id) is True
    assert Volume.destroy(volume.volume_id) is False


def case_a_network_is_set_and_changed() -> None:
    settings: Any = {"deny_out": ["0.0.0.0/0"], "allow_out": ["example.com"]}
    sandbox = Sandbox.create("base", timeout=60, network=settings)
    found = sandbox.get_info()
    assert found.allow_internet_access is False
    assert found.network["allow_out"] == ["example.com"]
    sandbox.update_network({"deny_out": ["192.0.2.0/24"]})
    assert sandbox.get_info().network["deny_out"] == ["192.0.2.0/24"]
    sandbox.kill()
    error = raised(
        SandboxException,
        lambda: Sandbox.create("base", network={"egress_proxy": {"address": "socks5://192.0.2.1:1"}}),
    )
    assert "does not have that" in str(error)


if __name__ == "__main__":
    runner.main(globals())
