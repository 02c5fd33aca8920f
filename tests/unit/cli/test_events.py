"""`atoll events`: filtered, cut by time, and followed from what has been without a gap."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import httpx2
import pytest

from tests.waiting import wait_until

from .conftest import Run


def test_events_are_filtered_and_cut_by_time(served: Run) -> None:
    made = served("sandbox", "create").stdout.strip()
    lines = served("events", "--json", "--target", made, "--action", "sandbox.*").stdout.splitlines()
    assert [json.loads(line)["action"] for line in lines] == ["sandbox.creating", "sandbox.running"]
    assert made in served("events", "--since", "1h").stdout
    assert served("events", "--until", "1h").stdout == ""
    number = json.loads(lines[0])["number"]
    later = served("events", "--json", "--target", made, "--action", "sandbox.*", "--after", str(number)).stdout
    assert [json.loads(line)["action"] for line in later.splitlines()] == ["sandbox.running"]
    assert served("events", "--follow", "--since", "1h").returncode == 2


def test_following_begins_with_what_has_been(served: Run, control: dict[str, str]) -> None:
    made = served("sandbox", "create").stdout.strip()
    program = [sys.executable, "-c", "from atoll.cli.main import main; main()"]
    wanted = ["--target", made, "--action", "sandbox.*", "--limit", "1", "--json"]
    with subprocess.Popen(
        [*program, "events", "--follow", *wanted], env={**os.environ, **control}, stdout=subprocess.PIPE, text=True
    ) as follower:
        assert follower.stdout is not None
        assert json.loads(follower.stdout.readline())["action"] == "sandbox.running"
        served("sandbox", "kill", made)
        seen = [json.loads(follower.stdout.readline()) for _ in range(2)]
        follower.terminate()
    assert [one["action"] for one in seen] == ["sandbox.ending", "sandbox.killed"]
    assert seen[1]["detail"]["reason"] == "killed_by_user"


def test_who_leaves_while_waiting_is_no_error_of_the_server(control: dict[str, str]) -> None:
    where = f"{control['ATOLL_URL']}/v1/events?after=1000000000&wait_s=20"
    with pytest.raises(httpx2.TimeoutException):
        httpx2.get(where, headers={"x-api-key": control["ATOLL_API_KEY"]}, timeout=0.5)
    wait_until(lambda: 'route="/v1/events",status="499"' in _metrics(control), 10, "it was seen to leave")
    assert 'route="/v1/events",status="500"' not in _metrics(control)


def _metrics(control: dict[str, str]) -> str:
    return httpx2.get(control["ATOLL_URL"] + "/metrics").text
