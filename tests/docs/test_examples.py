"""What the documents tell a reader to type works, on a real server."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from atoll.testing.server import Server

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[2]
ATOLL = str(Path(sys.executable).parent / "atoll")


def run(server: Server, argv: list[str]) -> str:
    environment = {**os.environ, "ATOLL_URL": server.url, "ATOLL_API_KEY": server.key}
    done = subprocess.run(
        argv, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
    return done.stdout


def test_the_commands_of_the_readme(server: Server) -> None:
    lines = re.findall(r"^    atoll ((?:run|sandbox) .*?)(?:  +#.*)?$", (ROOT / "README.md").read_text(), re.MULTILINE)
    outputs = [run(server, [ATOLL, *shlex.split(line)]) for line in lines]
    assert outputs[0] == "42\n"
    assert "gvisor" in outputs[-1].lower()
    run(server, [ATOLL, "sandbox", "kill", "--all"])


def test_the_create_of_the_api_page(server: Server) -> None:
    (body,) = re.findall(r"-d '(\{.*?\})'$", (ROOT / "docs" / "api.md").read_text(), re.DOTALL | re.MULTILINE)
    answer = server.request("POST", "/v1/sandboxes", json=json.loads(body))
    assert answer.status_code == 201, answer.text
    # What the page calls the defaults are the defaults.
    plain = server.request("POST", "/v1/sandboxes", json={}).json()["sandbox"]
    assert {name: plain[name] for name in ("template", "resources")} == {
        name: answer.json()["sandbox"][name] for name in ("template", "resources")
    }
    for view in (plain, answer.json()["sandbox"]):
        assert server.request("DELETE", f"/v1/sandboxes/{view['id']}").json()["state"] == "killed"


def test_the_quickstart(server: Server) -> None:
    assert "Hello from Atoll" in run(server, [sys.executable, str(ROOT / "examples" / "quickstart.py")])
