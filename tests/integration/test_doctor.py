"""`atoll doctor` finds the holes closed on a set-up host, says so, and cleans up what is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from atoll import Volume
from atoll.model.resources import Resources
from atoll.node import cgroups, probes
from atoll.node.names import HostNames
from atoll.testing.server import Server

pytestmark = pytest.mark.real


def doctor(data: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "ATOLL_DATA": str(data)}
    argv = [sys.executable, "-m", "atoll", "doctor", *flags]
    return subprocess.run(argv, capture_output=True, text=True, env=environment, timeout=60, check=False)


def test_every_probe_passes_in_a_real_sandbox(data_dir: Path) -> None:
    finished = doctor(data_dir, "--json")
    report = json.loads(finished.stdout)
    assert finished.returncode == 0, report
    assert report["healthy"]
    names = {finding["name"] for finding in report["findings"] if finding["status"] == "ok"}
    assert "memory merging" in names, "between sandboxes, by the kernel of the host"
    assert {"probe: read-only mounts", "probe: device nodes", "probe: raw sockets"} <= names
    assert {"probe: environ of process 1", "probe: network", "probe: checkpoint and restore"} <= names


def test_an_open_hole_would_be_found() -> None:
    """The judgement itself, on what a runtime with holes would have shown."""
    refused = dict.fromkeys(["a", "b"], "Permission denied")
    sound = {
        "read_only_binds": refused,
        "devices": refused,
        "raw_sockets": refused,
        "raw_sockets_in_user_namespace": refused,
        "network": refused,
        "environ_of_init": "Permission denied",
        "canary_seen": False,
        "host_processes": ["1", "2"],
        "kernel": "4.19.0-gvisor",
    }
    assert all(finding.status == "ok" for finding in probes.judge(sound, bind_intact=True, reached=False))
    holes: list[dict[str, object]] = [
        {"read_only_binds": {"truncate": "done"}},
        {"devices": {"kvm": "done"}},
        {"raw_sockets_in_user_namespace": {"raw": "done"}},
        {"network": {"gateway": "done"}},
        {"environ_of_init": "done"},
        {"canary_seen": True},
        {"kernel": "6.1.0"},
    ]
    for hole in holes:
        found = probes.judge({**sound, **hole}, bind_intact=True, reached=False)
        assert [finding.status for finding in found].count("fail") == 1, hole
    assert any(f.status == "fail" for f in probes.judge(sound, bind_intact=False, reached=False))
    assert any(f.status == "fail" for f in probes.judge(sound, bind_intact=True, reached=True))


def test_a_host_that_is_not_set_up_fails_with_what_to_do(tmp_path: Path) -> None:
    finished = doctor(tmp_path / "empty", "--outside")
    assert finished.returncode == 1
    assert "setup" in finished.stdout


def test_gc_removes_what_nobody_owns_and_leaves_the_living(make_server: Callable[..., Server]) -> None:
    """And all that somebody still needs: one that sleeps, what it sleeps in, snapshots, volumes."""
    server = make_server()
    sandbox = server.create("base", timeout_s=600)
    asleep, frozen = server.create("base", timeout_s=600), server.create("base", timeout_s=600)
    asleep.files.write("kept", "kept")
    snapshot = asleep.snapshot()
    asleep.pause()
    frozen.standby()
    own = {"url": server.url, "api_key": server.key}
    Volume.create("data", **own)
    with Volume.files("data", **own) as files:
        files.write("/kept", "kept")
    server.stop()
    names = HostNames.of(server.data)
    lost = "bx" + "0" * 36
    cgroups.detect().create(names.cgroup(lost), Resources())
    names.box_folder(lost).mkdir(parents=True)
    subprocess.run(["ip", "netns", "add", names.netns_inner("lost")], check=True)
    finished = doctor(server.data, "--gc", "--json")
    assert finished.returncode == 0, finished.stderr
    assert lost in finished.stdout
    assert lost not in server.boxes()
    assert "lost" not in {item.box for item in server.inventory()}
    server.start()
    own = {"url": server.url, "api_key": server.key}
    for one in (sandbox, frozen):
        assert server.connect(one.id).commands.run("echo alive").stdout == "alive\n"
    again = server.connect(asleep.id)
    again.resume()
    for one in (again, server.create(snapshot.id, timeout_s=600)):
        assert one.files.read("kept") == "kept"
    with Volume.files("data", **own) as files:
        assert files.read("/kept") == "kept"
