"""E2B's own command line, unmodified, on a real server."""

from __future__ import annotations

import subprocess

import pytest

from tests.compat.e2b.clients import Client

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

CLI = Client("node", "cli")
CREATE = "from e2b import Sandbox; print(Sandbox.create('base', timeout=200, metadata={'by': 'cli'}).sandbox_id)"


def e2b(environment: dict[str, str], *words: str) -> str:
    argv = [str(CLI.folder / "node_modules" / ".bin" / "e2b"), *words]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


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
