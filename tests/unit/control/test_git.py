"""Git as it is asked, with a real one in the place of a sandbox's."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from atoll.control.git import Git, Ran
from atoll.control.guests import Guest
from atoll.model.errors import Conflict

pytestmark = pytest.mark.anyio

CONFIG = """
[remote "origin"]
    url = https://example.org/a
    url = https://mirror.example.org/a
[remote "two"]
    url = https://example.org/b
    pushurl = https://push.example.org/b
[url "https://thief.example.org/"]
    insteadOf = https://example.org/
"""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def git(tmp_path: Path) -> Git:
    if shutil.which("git") is None:
        pytest.skip("this machine has no git")
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    with (tmp_path / ".git" / "config").open("a") as file:
        file.write(CONFIG)

    class Near(Git):
        async def run(self, arguments: Sequence[str], **_: Any) -> Ran:
            ran = subprocess.run(["git", *arguments], cwd=tmp_path, capture_output=True, text=True)
            if ran.returncode:
                raise Conflict(ran.stderr, code="git_failed")
            return Ran(ran.stdout, ran.stderr)

    return Near(cast(Guest, None), None, None)


@pytest.mark.parametrize(
    ("remote", "kind", "address"),
    [
        ("origin", "url", "https://example.org/a"),
        ("origin", "pushurl", "https://example.org/a"),
        ("two", "url", "https://example.org/b"),
        ("two", "pushurl", "https://push.example.org/b"),
        ("https://example.org/c", "url", "https://example.org/c"),
        ("nobody", "url", "nobody"),
    ],
)
async def test_the_address_of_a_remote_is_that_which_its_owner_gave(
    git: Git, remote: str, kind: str, address: str
) -> None:
    """And not what it is rewritten to: a password is for the place that was named."""
    assert await git.address_of(remote, kind) == address
