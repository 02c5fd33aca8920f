"""The newest command line, command by command and option by option, and what it says when something is wrong."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

from tests.compat.e2b.cli import PROMPT, Said, Shell
from tests.waiting import wait_until

REFUSED = "templates cannot be built or changed through E2B's API on this server"
BROWSER = """#!{python}
import sys, urllib.parse, urllib.request
asked = urllib.parse.parse_qs(urllib.parse.urlsplit(sys.argv[1]).query)["next"][0]
names = ("refreshToken", "tokenEndpoint", "revokeEndpoint", "clientId")
told = {{"email": "ada@example.com", "accessToken": {key!r}, **dict.fromkeys(names, "http://127.0.0.1:9/")}}
class Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None
try:
    urllib.request.build_opener(Stay).open(asked + "?" + urllib.parse.urlencode(told))
except urllib.error.HTTPError:
    pass
"""


def parsed(said: Said) -> Any:
    return json.loads(said.text)


def case_who_is_logged_in(shell: Shell) -> None:
    assert "Not logged in" in shell.ok("auth", "info")
    assert "No user config found" in shell.ok("auth", "configure")
    assert "nothing to do" in shell.ok("auth", "logout")


def case_a_login_asks_for_the_team_of_the_key(shell: Shell) -> None:
    """The page where one logs in is E2B's own. Somebody who comes back from it with a key of ours is let in."""
    key = shell.environment["E2B_API_KEY"]
    browser = shell.home / "bin" / "xdg-open"
    browser.parent.mkdir()
    browser.write_text(BROWSER.format(python=sys.executable, key=key))
    browser.chmod(0o755)
    path = f"{browser.parent}:{shell.environment['PATH']}"
    said = shell.ok("auth", "login", PATH=path, E2B_DOCS_BASE="http://127.0.0.1:9/docs")
    assert "Logged in as ada@example.com with selected project default" in said
    assert "ada@example.com" in shell.ok("auth", "info")
    shell.ok("sandbox", "list", E2B_API_KEY="")
    assert "Logged out" in shell.ok("auth", "logout")
    said = shell.e2b("sandbox", "list", E2B_API_KEY="")
    assert (said.code, "You must be logged in" in said) == (1, True)
    said = shell.e2b("sandbox", "list", E2B_API_KEY="e2b_" + "0" * 64)
    assert (said.code, "AuthenticationError" in said) == (1, True)


def case_templates_are_listed(shell: Shell) -> None:
    assert "code-interpreter-v1" in shell.ok("template", "list")
    listed = parsed(shell.ok("template", "list", "--format", "json", "--project", "any"))
    assert {entry["templateID"] for entry in listed} >= {"base", "code"}


def case_templates_are_not_changed(shell: Shell) -> None:
    for words in (("delete", "base"), ("publish", "base"), ("unpublish", "base")):
        said = shell.e2b("template", *words, "--yes", "--project", "any")
        assert (said.code, REFUSED in said) == (1, True), said.text
    said = shell.e2b("template", "delete", "nothing", "--yes")
    assert (said.code, "no template or snapshot 'nothing'" in said) == (1, True), said.text
    for word in ("delete", "unpublish"):
        keys = [(rb"Select sandbox templates", b" \r")]
        assert REFUSED in shell.in_terminal(keys, "template", word, "--select", "--yes")
    assert "No sandbox templates available to publish" in shell.ok("template", "publish", "--select")


def case_templates_are_not_built(shell: Shell) -> None:
    (shell.home / "Own.Dockerfile").write_text("FROM python:3\nRUN true\n")
    words = ("--path", str(shell.home), "--dockerfile", "Own.Dockerfile", "--cmd", "true", "--ready-cmd", "true")
    size = ("--cpu-count", "2", "--memory-mb", "512", "--min-free-disk-mb", "100", "--no-cache")
    said = shell.e2b("template", "create", "mine", *words, *size)
    assert (said.code, REFUSED in said) == (1, True), said.text
    assert "deprecated" in shell.e2b("template", "build", "mine")


def case_files_of_a_template_are_written_here(shell: Shell) -> None:
    folder = shell.home / "made"
    folder.mkdir()
    shell.ok("template", "init", "--path", str(folder), "--name", "mine", "--language", "python-sync")
    assert list(folder.rglob("template.py"))
    folder = shell.home / "old"
    folder.mkdir()
    (folder / "Own.Dockerfile").write_text("FROM python:3\n")
    (folder / "own.toml").write_text('template_id = "mine"\ndockerfile = "Own.Dockerfile"\n')
    words = ("--path", str(folder), "--dockerfile", "Own.Dockerfile", "--config", "own.toml", "--name", "other")
    more = (
        "--cmd",
        "true",
        "--ready-cmd",
        "true",
        "--cpu-count",
        "2",
        "--memory-mb",
        "512",
        "--language",
        "typescript",
    )
    shell.ok("template", "migrate", *words, *more)
    assert list(folder.rglob("template.ts"))


def case_a_terminal_in_a_new_sandbox(shell: Shell) -> None:
    words = ("--timeout", "100", "--env", "WHO=me", "--env", "AND=you", "--cwd", "/tmp", "--user", "root", "base")
    said = shell.in_terminal([(PROMPT, b"echo $WHO-$AND $(pwd) $(whoami); exit\n")], "sandbox", "create", *words)
    assert "me-you /tmp root" in said, said
    sandbox = re.search(r"sb[0-9a-z]{36}", said)
    assert sandbox is not None
    shell.ok("sandbox", "kill", sandbox[0])
    said = shell.in_terminal([(PROMPT, b"exit\n")], "sandbox", "spawn")
    assert "deprecated" in said, said


def case_a_terminal_in_a_sandbox_that_runs(shell: Shell) -> None:
    sandbox = shell.create()
    words = ("--cwd", "/tmp", "--user", "root", "--env", "WHO=me")
    keys = [(PROMPT, b"stty size; echo $WHO $(pwd) $(whoami); exit\n")]
    said = shell.in_terminal(keys, "sandbox", "connect", *words, sandbox)
    assert "me /tmp root" in said, said
    said = shell.in_terminal([], "sandbox", "connect", "sbnothing")
    assert "not found" in said, said
    shell.ok("sandbox", "kill", sandbox)


def case_a_sandbox_is_made_and_described(shell: Shell) -> None:
    sandbox = shell.create("--lifecycle.ontimeout", "pause", "--lifecycle.autoresume", "base")
    found = parsed(shell.ok("sandbox", "info", sandbox, "--format", "json"))
    assert (found["sandboxId"], found["templateId"], found["state"]) == (sandbox, "base", "running")
    assert found["lifecycle"] == {"onTimeout": "pause", "autoResume": True}
    assert "State: running" in shell.ok("sandbox", "info", sandbox)
    said = shell.e2b("sandbox", "info", "sbnothing")
    assert (said.code, "wasn't found" in said) == (1, True)
    said = shell.e2b("sandbox", "create", "--detach", "nothing-like-it")
    assert (said.code, "there is no template 'nothing-like-it'" in said) == (1, True)
    shell.ok("sandbox", "kill", sandbox)


def case_sandboxes_are_listed_and_killed_by_what_they_are(shell: Shell) -> None:
    python = "from e2b import Sandbox; print(Sandbox.create('base', timeout=100, metadata={'by': 'cli'}).sandbox_id)"
    first = shell.python(python)
    second = shell.python(python)
    mine = ("--metadata", "by=cli")

    def listed(*words: str) -> list[str]:
        return [entry["sandboxId"] for entry in parsed(shell.ok("sandbox", "list", "--format", "json", *mine, *words))]

    assert listed() == listed("--order", "asc") == [first, second]
    assert listed("--order", "desc") == [second, first]
    assert listed("--template", "base", "--started-after", "2025-01-01T00:00:00Z", "--limit", "1") == [second]
    assert listed("--template", "code-interpreter-v1") == listed("--started-after", "2100-01-01T00:00:00Z") == []
    assert f"{first} " in shell.ok("sandbox", "list", "--limit", "0")
    shell.ok("sandbox", "pause", first)
    assert (listed("--state", "paused"), listed("--state", "running,paused")) == ([first], [first, second])
    said = shell.e2b("sandbox", "list", "--state", "wrong")
    assert (said.code, "state is running, paused or both" in said) == (1, True)
    assert first in shell.ok("sandbox", "kill", "--all", "--state", "paused", *mine)
    assert second in shell.ok("sandbox", "kill", "--all", *mine)
    assert listed("--state", "running,paused") == []
    assert "wasn't found" in shell.ok("sandbox", "kill", first, second)


def case_commands_run_inside(shell: Shell) -> None:
    sandbox = shell.create()
    whole = ("--user", "root", "--cwd", "/tmp", "--env", "A=1", "--env", "B=2")
    said = shell.e2b("sandbox", "exec", *whole, sandbox, "whoami; pwd; echo $A$B; exit 3")
    assert (said.code, "root\n/tmp\n12\n" in said) == (3, True), said.text
    assert "a b --help\n" in shell.ok("sandbox", "exec", sandbox, "--", "echo", "a b", "--help")
    assert shell.ok("sandbox", "exec", sandbox, "wc", "-c", given="x" * 200_000).text.split() == ["200000"]
    shell.ok("sandbox", "exec", "--background", sandbox, "sleep 1; touch /tmp/later")
    shell.ok("sandbox", "exec", sandbox, "until [ -e /tmp/later ]; do sleep 0.1; done")
    for wrong, words in (("invalid username: 'nobody9'", ("--user", "nobody9")), ("'/no'", ("--cwd", "/no"))):
        said = shell.e2b("sandbox", "exec", *words, sandbox, "true")
        assert (said.code, wrong in said) == (1, True), said.text
    said = shell.e2b("sandbox", "exec", "sbnothing", "true")
    assert (said.code, "not found" in said) == (1, True)
    shell.ok("sandbox", "kill", sandbox)


def case_a_sandbox_sleeps_and_wakes(shell: Shell) -> None:
    sandbox = shell.create()
    assert "has been paused" in shell.ok("sandbox", "pause", sandbox)
    assert "is already paused" in shell.ok("sandbox", "pause", sandbox)
    assert "has been resumed" in shell.ok("sandbox", "resume", sandbox)
    for word in ("pause", "resume"):
        said = shell.e2b("sandbox", word, "sbnothing")
        assert (said.code, "wasn't found" in said) == (1, True)
    shell.ok("sandbox", "kill", sandbox)


def case_logs_are_shown_followed_and_kept(shell: Shell) -> None:
    sandbox = shell.create()
    assert "sandbox.running" in shell.ok("sandbox", "logs", sandbox, "--loggers", "atoll")
    assert "sandbox.running" not in shell.ok("sandbox", "logs", sandbox, "--loggers", "other")
    assert "sandbox.running" not in shell.ok("sandbox", "logs", sandbox, "--level", "ERROR")
    lines = shell.ok("sandbox", "logs", sandbox, "--format", "json", "--level", "DEBUG").text.split("\n")
    assert json.loads(next(line for line in lines if line))["message"] == "sandbox.creating"
    with shell.begin("sandbox", "logs", sandbox, "--follow") as following:
        assert following.stdout is not None
        wait_until(lambda: "sandbox.running" in following.stdout.readline(), 20)  # type: ignore[union-attr]
        shell.ok("sandbox", "kill", sandbox)
        rest, _ = following.communicate(timeout=30)
    assert "sandbox is closed" in rest, rest
    assert rest.count("'sandbox.killed'") <= 2  # the event and its message: nothing is told twice
    assert following.returncode == 0
    assert "sandbox.killed" in shell.ok("sandbox", "logs", sandbox)
    said = shell.e2b("sandbox", "logs", "sbnothing")
    assert (said.code, "doesn't exist" in said) == (1, True)


def case_metrics_are_shown_and_followed(shell: Shell) -> None:
    sandbox = shell.create()
    assert "CPU" in shell.ok("sandbox", "metrics", sandbox)
    lines = [line for line in shell.ok("sandbox", "metrics", sandbox, "--format", "json").text.split("\n") if line]
    assert json.loads(lines[-1])["memTotal"] > 0
    with shell.begin("sandbox", "metrics", sandbox, "--follow") as following:
        assert following.stdout is not None
        wait_until(lambda: "CPU" in following.stdout.readline(), 20)  # type: ignore[union-attr]
        shell.ok("sandbox", "kill", sandbox)
        rest, _ = following.communicate(timeout=30)
    assert "not found" in rest, rest
    said = shell.e2b("sandbox", "metrics", "sbnothing")
    assert (said.code, "not found" in said) == (1, True)


def case_snapshots_are_taken_listed_and_deleted(shell: Shell) -> None:
    sandbox = shell.create()
    first = shell.ok("sandbox", "snapshot", "create", sandbox, "--name", "of-the-cli").word("sn")
    second = shell.ok("sandbox", "snapshot", "create", sandbox, "--name", "of-the-cli").word("sn")
    assert first != second
    named = parsed(shell.ok("sandbox", "snapshot", "list", "--name", "of-the-cli", "--format", "json"))
    assert named == [{"snapshotId": second, "names": ["of-the-cli"]}]
    listed = parsed(shell.ok("sandbox", "snapshot", "list", sandbox, "--limit", "1", "--format", "json"))
    assert [entry["snapshotId"] for entry in listed] == [second]
    assert first in shell.ok("sandbox", "snapshot", "list", sandbox)
    copy = shell.create("of-the-cli")
    said = shell.ok("sandbox", "snapshot", "delete", "of-the-cli", first, "nothing")
    assert f"{first} has been deleted" in said
    assert "nothing wasn't found" in said
    said = shell.e2b("sandbox", "snapshot", "create", "sbnothing")
    assert (said.code, "wasn't found" in said) == (1, True)
    shell.ok("sandbox", "kill", sandbox, copy)
