"""`atoll env e2b --map`: names of templates that a program uses mean others here."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from atoll.testing.server import Server
from tests.compat.e2b.clients import WHOLE, Client
from tests.compat.e2b.conftest import environment_of

pytestmark = [pytest.mark.real, pytest.mark.timeout(200)]

PYTHON = """
from e2b import Sandbox, NotFoundException, Volume
sandbox = Sandbox.create("desktop", timeout=60)
print(sandbox.commands.run("echo mapped").stdout)
assert Sandbox.get_info(sandbox.sandbox_id).sandbox_id == sandbox.sandbox_id
assert sandbox.sandbox_id in [entry.sandbox_id for entry in Sandbox.list().next_items()]
volume = Volume.create("mapped")
volume.write_file("/f", "1")
assert volume.read_file("/f") == "1"
Volume.destroy(volume.volume_id)
sandbox.kill()
try:
    Sandbox.create("other", timeout=60)
except Exception as error:
    print("refused:", error)
"""
NODE = """
const { Sandbox } = require('e2b')
Sandbox.create('desktop', { timeoutMs: 60000 }).then(async (s) => {
  console.log((await s.commands.run('echo mapped')).stdout)
  await s.kill()
  await Sandbox.create('other').catch((error) => console.log('refused:', error.message))
  process.exit(0)
})
"""


@pytest.fixture(scope="module")
def environment(
    make_data_dir: Callable[[], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    server = Server(make_data_dir(), {})
    server.start()
    try:
        yield environment_of(server, tmp_path_factory.mktemp("home"), "--map", "desktop=base", "--map", "mine=code")
    finally:
        server.close()


def _python() -> tuple[list[str], Path]:
    client = Client("python", "new")
    return [str(client.folder / "bin" / "python"), "-c", PYTHON], client.folder


def _node() -> tuple[list[str], Path]:
    return ["node", "-e", NODE], Client("node", "new").folder


@pytest.mark.parametrize("program", [_python, _node] if WHOLE else [_python])
def test_a_mapped_name_works_and_another_is_refused(
    environment: dict[str, str], program: Callable[[], tuple[list[str], Path]]
) -> None:
    argv, folder = program()
    done = subprocess.run(argv, env=environment, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("mapped"), done.stderr
    assert "refused:" in done.stdout
