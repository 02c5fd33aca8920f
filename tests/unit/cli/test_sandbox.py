"""`atoll sandbox`: create, ls, info, exec, kill, by id, name and part of an id."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from atoll.cli import states
from atoll.cli.main import main
from atoll.client import Forks
from atoll.model.errors import Unavailable

from .conftest import Run


@pytest.fixture
def made(atoll: Run) -> str:
    created = atoll("sandbox", "create", "-m", "from=cli", "-e", "A=1", "--timeout", "5m")
    assert created.returncode == 0, created.stderr
    return created.stdout.strip()


def test_exec_passes_output_and_exit_code_on(atoll: Run, made: str) -> None:
    done = atoll("sandbox", "exec", made, "echo $A; echo no >&2; exit 7")
    assert (done.stdout, done.stderr, done.returncode) == ("1\n", "no\n", 7)
    assert atoll("sandbox", "exec", made, "--", "printf", "%s|", "a b", "-c").stdout == "a b|-c|"
    assert atoll("sandbox", "exec", "-e", "B=2", made, "sh", "-c", "echo $B").stdout == "2\n"


def test_exec_passes_standard_input_on(atoll: Run, made: str) -> None:
    assert atoll("sandbox", "exec", made, "cat", stdin="from here\n").stdout == "from here\n"


def test_exec_ended_by_signal_or_time(atoll: Run, made: str) -> None:
    assert atoll("sandbox", "exec", made, "kill -9 $$").returncode == 137
    timed_out = atoll("sandbox", "exec", "--timeout", "0.2", made, "sleep", "20")
    assert (timed_out.returncode, "time limit" in timed_out.stderr) == (124, True)


def test_the_interrupt_goes_to_the_command(environment: dict[str, str], made: str) -> None:
    code = "from atoll.cli.main import main; main()"
    line = "trap 'echo got it; exit 5' INT; echo ready; while :; do sleep 0.05; done"
    with subprocess.Popen(
        [sys.executable, "-c", code, "sandbox", "exec", made, line],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        running.send_signal(signal.SIGINT)
        assert running.stdout.read() == "got it\n"
        assert running.wait() == 5


def test_ls_and_info(atoll: Run, made: str) -> None:
    table = atoll("sandbox", "ls", "-m", "from=cli").stdout.splitlines()
    assert table[0].split()[:3] == ["ID", "NAME", "TEMPLATE"]
    assert any(made in row and "running" in row for row in table[1:])
    assert made in [view["id"] for view in json.loads(atoll("sandbox", "ls", "--json").stdout)]
    assert json.loads(atoll("sandbox", "info", made, "--json").stdout)["metadata"] == {"from": "cli"}
    assert "1GiB" in atoll("sandbox", "info", made).stdout


def test_a_part_of_an_id_is_enough(atoll: Run, made: str) -> None:
    assert json.loads(atoll("sandbox", "info", made[-8:], "--json").stdout)["id"] == made
    missing = atoll("sandbox", "info", "zz9")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert "sandbox_not_found" in missing.stderr


def test_kill_some_and_all(atoll: Run, made: str) -> None:
    named = atoll("sandbox", "create", "--name", "to-kill", "--json")
    identity = json.loads(named.stdout)["id"]
    assert atoll("sandbox", "kill", "to-kill").stdout.strip() == identity
    partly = atoll("sandbox", "kill", "nobody-here", made)
    assert (partly.returncode, partly.stdout.strip()) == (1, made)
    another = atoll("sandbox", "create").stdout.strip()
    assert another in json.loads(atoll("sandbox", "kill", "--all", "--json").stdout)
    assert json.loads(atoll("sandbox", "ls", "--json").stdout) == []
    assert another in atoll("sandbox", "ls", "--all").stdout


def test_usage_errors_are_two(atoll: Run) -> None:
    assert atoll("sandbox", "kill").returncode == 2
    assert atoll("sandbox", "create", "-e", "novalue").returncode == 2
    assert atoll("sandbox", "create", "--timeout", "soon").returncode == 2
    assert atoll("nonsense").returncode == 2


def test_errors_are_a_line_and_a_hint(atoll: Run) -> None:
    for done in (
        atoll("sandbox", "ls", ATOLL_URL="http://127.0.0.1:9"),
        atoll("sandbox", "ls", ATOLL_API_KEY="wrong"),
        atoll("sandbox", "create", "--memory", "lots"),
        atoll("sandbox", "create", "--memory", "1"),
        atoll("sandbox", "create", "-t", "nothing"),
    ):
        assert done.returncode == 1
        assert done.stderr.startswith("error: ")
        assert len(done.stderr.splitlines()) == 2
        assert "Traceback" not in done.stderr


def test_template_ls(atoll: Run) -> None:
    assert "code" in atoll("template", "ls").stdout
    assert [view["name"] for view in json.loads(atoll("template", "ls", "--json").stdout)] == ["base", "code"]


def test_help_is_quick_and_imports_no_client(atoll: Run) -> None:
    started_s = time.monotonic()
    assert "sandbox" in atoll("--help").stdout
    assert time.monotonic() - started_s < 2  # a loaded machine; 100 ms on a quiet one
    code = "import sys, atoll.cli.main; sys.exit(any(m in sys.modules for m in ('httpx2', 'msgspec', 'asyncio')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_list_is_narrowed_by_all_that_a_list_can_be(served: Run) -> None:
    served("tenant", "create", "lister")
    mine = {"ATOLL_API_KEY": served("key", "create", "first", "--tenant", "lister").stdout.strip()}
    wishes = ("--name", "one", "--id", "run-1", "-m", "team=a", "--pids", "64")
    first = served("sandbox", "create", *wishes, **mine).stdout.strip()
    second = served("sandbox", "create", "-t", "base", "-m", "team=b", **mine).stdout.strip()
    served("sandbox", "kill", second, **mine)

    def ids(*filters: str) -> list[str]:
        return [one["id"] for one in json.loads(served("sandbox", "ls", "--json", *filters, **mine).stdout)]

    assert ids() == [first]
    assert ids("--all") == [second, first]
    assert ids("--state", "killed", "--state", "running") == [second, first]
    assert ids("--name", "one") == ids("-m", "team=a") == [first]
    assert ids("-a", "-t", "base") == [second]
    assert ids("-a", "--since", "1h", "--limit", "1") == [second]
    assert ids("-a", "--until", "1h") == ids("-a", "--since", "2100-01-01") == []
    assert served("sandbox", "ls", "-a", "--count", **mine).stdout == "2\n"
    assert served("sandbox", "ls", "--state", "nonsense").returncode == 2
    assert served("sandbox", "ls", "--since", "yesterday").returncode == 2
    lines = served("sandbox", "info", "run-1", **mine).stdout.splitlines()
    shown = {(name, value.strip()) for name, _, value in (line.partition("  ") for line in lines)}
    assert {("id", first), ("your id", "run-1"), ("processes", "64")} <= shown


def test_a_deadline_is_moved(served: Run) -> None:
    made = served("sandbox", "create", "--timeout", "60").stdout.strip()
    moved = served("sandbox", "timeout", made, "2h")
    assert moved.stdout.endswith(" UTC\n")
    assert "(in 1h59m), then kill" in served("sandbox", "info", made).stdout
    assert served("sandbox", "timeout", made, "soon").returncode == 2
    refused = served("sandbox", "timeout", made, "90d")
    assert (refused.returncode, "invalid_timeout" in refused.stderr) == (1, True)
    served("sandbox", "kill", made)
    assert "not_running" in served("sandbox", "timeout", made, "2h").stderr


def test_a_create_is_repeated_with_its_key(served: Run) -> None:
    first, second = (served("sandbox", "create", "--idempotency-key", "k").stdout for _ in range(2))
    assert first == second != ""
    assert "idempotency_conflict" in served("sandbox", "create", "--idempotency-key", "k", "--name", "x").stderr


def test_a_fork_prints_the_copies_that_were_made_and_why_others_were_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[dict[str, Any]] = []

    def fork(count: int, **options: Any) -> Forks[Any]:
        asked.append({"count": count, **options})
        copies = [SimpleNamespace(id=one, close=lambda: None) for one in ("sb1", "sb2")]
        return Forks(copies, [Unavailable("there is no memory for another sandbox", code="no_memory")])

    monkeypatch.setattr(states, "find", lambda _: SimpleNamespace(fork=fork, close=lambda: None))
    with pytest.raises(SystemExit) as ended:
        main(["sandbox", "fork", "-n", "3", "one"])
    said = capsys.readouterr()
    assert (ended.value.code, said.out) == (1, "sb1\nsb2\n")
    assert "no_memory" in said.err
    assert asked == [{"count": 3, "timeout_s": None, "partial": True}]


def test_of_a_snapshot_the_disk_alone(served: Run) -> None:
    """What the hint of a snapshot of another processor says."""
    one = served("sandbox", "create").stdout.strip()
    snapshot = served("sandbox", "snapshot", one).stdout.strip()
    made = served("sandbox", "create", "-t", snapshot, "--disk-only")
    assert (made.returncode, made.stderr) == (0, "")
    assert served("sandbox", "kill", one, made.stdout.strip()).returncode == 0


def test_a_sandbox_is_created_with_the_policy_of_a_file(served: Run, tmp_path: Path) -> None:
    """All that a policy can say, and not hosts alone; what is said beside it takes the place of its own."""
    path = tmp_path / "policy.json"
    path.write_text('{"mode": "public", "deny": ["a.test"], "allow": ["b.test"], "bytes_max": 1000}')
    for options, allow in (([], ["b.test"]), (["--allow", "c.test"], ["c.test"])):
        made = served("sandbox", "create", "-t", "base", "--policy", str(path), *options).stdout.strip()
        policy = json.loads(served("policy", "show", made, "--json").stdout)
        assert (policy["mode"], policy["deny"], policy["bytes_max"]) == ("public", ["a.test"], 1000)
        assert policy["allow"] == allow
        served("sandbox", "kill", made)


@pytest.mark.parametrize("text", ["{", '["b.test"]', None])
@pytest.mark.parametrize("command", [["sandbox", "create"], ["run", "1"], ["run", "--rm", "1"], ["policy", "set", "x"]])
def test_a_file_that_is_no_policy_is_refused_before_anything_is_asked(
    served: Run, tmp_path: Path, command: list[str], text: str | None
) -> None:
    path = tmp_path / "policy.json"
    if text is not None:
        path.write_text(text)
    option = "--file" if command[0] == "policy" else "--policy"
    refused = served(*command, option, str(path), ATOLL_URL="http://127.0.0.1:1")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert str(path) in refused.stderr


def test_code_that_is_run_in_one_call_has_no_policy(served: Run, tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    path.write_text("{}")
    refused = served("run", "--rm", "--policy", str(path), "1")
    assert (refused.returncode, "--policy" in refused.stderr) == (2, True)
