"""The command line of a year ago, command by command and option by option."""

from __future__ import annotations

import json
import re

from tests.compat.e2b.cli import PROMPT, Shell
from tests.compat.e2b.cli_new import REFUSED, parsed
from tests.waiting import wait_until

CREATE = "from e2b import Sandbox; print(Sandbox.create('base', timeout=200, metadata={'by': 'old'}).sandbox_id)"


def case_who_is_logged_in(shell: Shell) -> None:
    assert "Not logged in" in shell.ok("auth", "info")
    assert "No user config found" in shell.ok("auth", "configure")
    assert "Not logged in" in shell.ok("auth", "logout")


def case_the_team_is_that_of_the_key(shell: Shell) -> None:
    key = shell.environment["E2B_API_KEY"]
    known = {"email": "ada@example.com", "accessToken": key, "teamName": "", "teamId": "", "teamApiKey": key}
    file = shell.home / ".e2b" / "config.json"
    file.parent.mkdir()
    file.write_text(json.dumps(known))
    assert "ada@example.com" in shell.ok("auth", "info")
    assert "Already logged in" in shell.ok("auth", "login")
    said = shell.in_terminal([(rb"Select team", b"\r")], "auth", "configure")
    assert "(default) selected" in said, said
    assert json.loads(file.read_text())["teamApiKey"] == key
    shell.ok("auth", "logout")
    assert not file.exists()


def case_templates_are_listed_and_not_changed(shell: Shell) -> None:
    assert "code-interpreter-v1" in shell.ok("template", "list")
    listed = parsed(shell.ok("template", "list", "--format", "json", "--team", "any"))
    assert {entry["templateID"] for entry in listed} >= {"base", "code"}
    words = ("--yes", "--team", "any", "--path", str(shell.home), "--config", "own.toml")
    for word in ("delete", "publish", "unpublish"):
        said = shell.e2b("template", word, "base", *words)
        assert (said.code, REFUSED in said) == (1, True), said.text
    for word in ("delete", "unpublish"):
        keys = [(rb"Select sandbox templates", b" \r")]
        assert REFUSED in shell.in_terminal(keys, "template", word, "--select", "--yes")
    assert "No sandbox templates available to publish" in shell.ok("template", "publish", "--select")


def case_templates_are_not_built(shell: Shell) -> None:
    (shell.home / "Own.Dockerfile").write_text("FROM python:3\nRUN true\n")
    words = ("--path", str(shell.home), "--dockerfile", "Own.Dockerfile", "--cmd", "true", "--ready-cmd", "true")
    said = shell.e2b("template", "create", "mine", *words, "--cpu-count", "2", "--memory-mb", "512", "--no-cache")
    assert (said.code, REFUSED in said) == (1, True), said.text
    folder = shell.home / "made"
    folder.mkdir()
    shell.ok("template", "init", "--path", str(folder), "--name", "mine", "--language", "python-sync")
    assert list(folder.rglob("template.py"))
    (folder / "own.toml").write_text('template_id = "mine"\ndockerfile = "Own.Dockerfile"\n')
    (folder / "Own.Dockerfile").write_text("FROM python:3\n")
    more = ("--path", str(folder), "--dockerfile", "Own.Dockerfile", "--config", "own.toml")
    shell.ok("template", "migrate", *more, "--language", "typescript")
    assert list(folder.rglob("template.ts"))


def case_sandboxes(shell: Shell) -> None:
    sandbox = shell.python(CREATE)
    words = ("--metadata", "by=old", "--state", "running", "--limit", "1", "--format", "json")
    assert [entry["sandboxId"] for entry in parsed(shell.ok("sandbox", "list", *words))] == [sandbox]
    assert sandbox in shell.ok("sandbox", "list")
    said = shell.in_terminal([(PROMPT, b"echo $((40+2)); exit\n")], "sandbox", "connect", sandbox)
    assert "42" in said, said
    assert sandbox in shell.ok("sandbox", "kill", "--all", "--metadata", "by=old", "--state", "running")
    assert "wasn't found" in shell.ok("sandbox", "kill", sandbox)
    assert sandbox not in shell.ok("sandbox", "list")


def case_a_terminal_in_a_new_sandbox(shell: Shell) -> None:
    (shell.home / "own.toml").write_text('template_id = "base"\ndockerfile = "Dockerfile"\n')
    words = ("--path", str(shell.home), "--config", "own.toml")
    said = shell.in_terminal([(PROMPT, b"echo $((40+2)); exit\n")], "sandbox", "create", *words)
    assert "42" in said, said
    sandbox = re.search(r"sb[0-9a-z]{36}", said)
    assert sandbox is not None
    assert sandbox[0] not in shell.ok("sandbox", "list")  # this version kills what it has made


def case_logs_and_metrics(shell: Shell) -> None:
    sandbox = shell.python(CREATE)
    assert "sandbox.running" in shell.ok("sandbox", "logs", sandbox, "--loggers", "atoll", "--level", "INFO")
    lines = shell.ok("sandbox", "logs", sandbox, "--format", "json").text.split("\n")
    assert json.loads(next(line for line in lines if line))["message"] == "sandbox.creating"
    assert "CPU" in shell.ok("sandbox", "metrics", sandbox)
    lines = [line for line in shell.ok("sandbox", "metrics", sandbox, "--format", "json").text.split("\n") if line]
    assert json.loads(lines[-1])["memTotal"] > 0
    with (
        shell.begin("sandbox", "logs", sandbox, "--follow") as logs,
        shell.begin("sandbox", "metrics", sandbox, "--follow") as metrics,
    ):
        wait_until(lambda: "sandbox.running" in logs.stdout.readline(), 20)  # type: ignore[union-attr]
        wait_until(lambda: "CPU" in metrics.stdout.readline(), 20)  # type: ignore[union-attr]
        shell.ok("sandbox", "kill", sandbox)
        rest, _ = logs.communicate(timeout=30)
        assert "sandbox is closed" in rest, rest
        rest, _ = metrics.communicate(timeout=30)
        assert "doesn't exist" in rest, rest
