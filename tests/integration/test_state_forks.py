"""Forks of what lives: they differ in all that must differ, and none is made that does not."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from atoll import Sandbox
from atoll.model.errors import AtollError
from atoll.testing.server import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.real

# State of every source of chance that a program keeps in its own memory: drawn from once, so that it is there.
WARM_PYTHON = """
import os, random, ssl, uuid, numpy
random.seed(1), ssl.RAND_bytes(8), uuid.uuid4(), numpy.random.seed(1)
"""
DRAW_PYTHON = """
print(random.random()); print(uuid.uuid4()); print(ssl.RAND_bytes(16).hex()); print(os.urandom(16).hex())
print(numpy.random.random()); print(numpy.random.default_rng().random()); print(random.SystemRandom().random())
"""
WARM_NODE = "const c = require('crypto'); c.randomBytes(8); c.randomUUID(); Math.random()"
DRAW_NODE = """
{ const c = require('crypto'); console.log(Math.random()); console.log(c.randomBytes(16).toString('hex'))
console.log(c.randomUUID()); console.log(c.randomInt(2 ** 40)) }
"""
LOOK = "hostname; cat /etc/machine-id; cat /etc/hostname"
# Busy while it is copied: it draws with state from before, after it has seen that it may.
BUSY = """
import os, random, ssl, time
random.seed(1); ssl.RAND_bytes(8)
open('/home/user/busy', 'w').close()
while not os.path.exists('/home/user/go'): time.sleep(0.005)
open('/home/user/drawn', 'w').write(f'{random.random()} {ssl.RAND_bytes(16).hex()}')
"""


@pytest.fixture
def sandbox(server: Server) -> Iterator[Sandbox]:
    with server.create("code", timeout_s=600) as sandbox:
        yield sandbox


def token(server: Server, sandbox: Sandbox) -> str:
    entry = json.loads((server.data / "journal" / f"{server.box_of(sandbox.id)}.json").read_text())
    return str(entry["token"])


def test_two_forks_of_live_interpreters_share_no_chance(server: Server, sandbox: Sandbox) -> None:
    """Python's, OpenSSL's, numpy's and Node's; and the names by which the world tells computers apart."""
    sandbox.code.run(WARM_PYTHON, check=True)
    sandbox.code.run("kept = 'yes'", check=True)
    sandbox.code.run(WARM_NODE, language="javascript", check=True)
    a, b = sandbox.fork(2)
    with a, b:
        rows = []
        for one in (a, b, sandbox):
            python = one.code.run(DRAW_PYTHON, check=True).stdout.split()
            node = one.code.run(DRAW_NODE, language="javascript", check=True).stdout.split()
            names = one.commands.run(LOOK).stdout.split()
            rows.append([*python, *node, *names, token(server, one), one.id])
            assert one.code.run("kept").text == "'yes'", "it is the same interpreter all the same"
        assert {len(row) for row in rows} == {7 + 4 + 3 + 2}
        for column in zip(*rows, strict=True):
            assert len(set(column)) == 3, column


def test_a_busy_interpreter_draws_anew_too(sandbox: Sandbox) -> None:
    sandbox.code.start(BUSY)
    wait_until(lambda: sandbox.files.exists("busy"), 30, "it has begun")
    drawn = []
    forks = sandbox.fork(2)
    for one in forks:
        with one:
            one.files.write("go", "")
            drawn.append(what_was_drawn(one))
    assert drawn[0][0] != drawn[1][0], "Python's"
    assert drawn[0][1] != drawn[1][1], "OpenSSL's"


def what_was_drawn(sandbox: Sandbox) -> list[str]:
    wait_until(lambda: sandbox.files.exists("drawn") and sandbox.files.read("drawn"), 30)
    return sandbox.files.read("drawn").split()


def test_a_copy_that_cannot_draw_anew_is_refused(server: Server, sandbox: Sandbox) -> None:
    """And what it was to be a copy of goes on."""
    pid = sandbox.code.run("import os; os.getpid()", check=True).text
    before = server.boxes()
    sandbox.commands.run(f"kill -STOP {pid}", check=True)
    with pytest.raises(AtollError) as caught:
        sandbox.fork(1)
    assert caught.value.code == "reseed_failed"
    wait_until(lambda: server.boxes() == before, 30, "nothing of the copy is left")
    sandbox.commands.run(f"kill -CONT {pid}", check=True)
    assert sandbox.code.run("6 * 7").text == "42"
