"""E2B's own command line, unmodified, on a real server."""

from __future__ import annotations

import functools
import os
import pty
import re
import select
import subprocess

import pytest

from tests.compat.e2b.clients import Client

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

CLI = Client("node", "cli")
OLD = Client("node", "cli-old")
CREATE = "from e2b import Sandbox; print(Sandbox.create('base', timeout=200, metadata={'by': 'cli'}).sandbox_id)"


CREATE_IN_TERMINAL = ("sandbox", "create", "--timeout", "100", "--env", "WHO=me", "base")
PROMPT = re.compile(rb"[$#] $")


def e2b(environment: dict[str, str], *words: str, cli: Client = CLI) -> str:
    argv = [str(cli.folder / "node_modules" / ".bin" / "e2b"), *words]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def in_terminal(environment: dict[str, str], typed: bytes, *words: str, cli: Client = CLI) -> str:
    """What a person sees who types this into a terminal on which the command runs, until the command ends."""
    argv = [str(cli.folder / "node_modules" / ".bin" / "e2b"), *words]
    ours, theirs = pty.openpty()
    seen = b""
    with subprocess.Popen(
        argv, env={**environment, "TERM": "xterm"}, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    ) as process:
        os.close(theirs)
        try:
            while data := _read(ours):
                seen += data
                if typed and PROMPT.search(seen):  # the shell inside is there
                    os.write(ours, typed)
                    typed = b""
        finally:
            os.close(ours)
            process.kill()
    return seen.decode("utf-8", "replace")


def _read(terminal: int) -> bytes:
    """The next output; nothing once nobody has the terminal any more."""
    readable, _, _ = select.select([terminal], [], [], 60)
    assert readable, "the command says nothing"
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""


def test_a_terminal_in_a_new_sandbox_and_in_one_that_runs(headers_mode: dict[str, str]) -> None:
    said = in_terminal(headers_mode, b"echo $((40+2)) $WHO; touch /tmp/here; exit\n", *CREATE_IN_TERMINAL)
    assert "42 me" in said, said
    detached = e2b(headers_mode, "sandbox", "create", "--detach", "--timeout", "100", "base")
    sandbox = next(word for word in detached.split() if word.startswith("sb") and len(word) == 38)
    said = in_terminal(headers_mode, b"pwd; whoami; exit\n", "sandbox", "connect", "--cwd", "/tmp", sandbox)
    assert re.search(r"/tmp\s+user\s+logout", said), said
    said = e2b(headers_mode, "sandbox", "snapshot", "create", sandbox)
    snapshot = next(word for word in re.split(r"[^0-9a-z]+", said) if word.startswith("sn") and len(word) == 38)
    assert snapshot in e2b(headers_mode, "sandbox", "snapshot", "list")
    assert snapshot in e2b(headers_mode, "sandbox", "snapshot", "delete", snapshot)
    e2b(headers_mode, "sandbox", "kill", sandbox)


def test_the_command_line_works(headers_mode: dict[str, str]) -> None:
    python = str(Client("python", "new").folder / "bin" / "python")
    made = subprocess.run([python, "-c", CREATE], env=headers_mode, capture_output=True, text=True, check=True)
    sandbox = made.stdout.strip()
    assert sandbox in e2b(headers_mode, "sandbox", "list")
    assert "running" in e2b(headers_mode, "sandbox", "info", sandbox)
    assert "hi\nuser" in e2b(headers_mode, "sandbox", "exec", sandbox, "echo hi; whoami")
    assert "sandbox.running" in e2b(headers_mode, "sandbox", "logs", sandbox)
    assert "CPU" in e2b(headers_mode, "sandbox", "metrics", sandbox)
    assert "paused" in e2b(headers_mode, "sandbox", "pause", sandbox)
    assert "resumed" in e2b(headers_mode, "sandbox", "resume", sandbox)
    assert "killed" in e2b(headers_mode, "sandbox", "kill", sandbox)
    assert sandbox not in e2b(headers_mode, "sandbox", "list")
    assert "code-interpreter-v1" in e2b(headers_mode, "template", "list")


def test_the_command_line_of_a_year_ago_works(domain_mode: dict[str, str]) -> None:
    python = str(Client("python", "new").folder / "bin" / "python")
    made = subprocess.run([python, "-c", CREATE], env=domain_mode, capture_output=True, text=True, check=True)
    sandbox = made.stdout.strip()
    ask = functools.partial(e2b, domain_mode, cli=OLD)
    assert sandbox in ask("sandbox", "list")
    assert "sandbox.running" in ask("sandbox", "logs", sandbox)
    assert "CPU" in ask("sandbox", "metrics", sandbox)
    said = in_terminal(domain_mode, b"echo $((40+2)); exit\n", "sandbox", "connect", sandbox, cli=OLD)
    assert "42" in said, said
    assert "killed" in ask("sandbox", "kill", sandbox)
    assert sandbox not in ask("sandbox", "list")
    assert "code-interpreter-v1" in ask("template", "list")
