"""Forks of what lives: they differ in all that must differ, and none is made that does not."""

from __future__ import annotations

import importlib.util
import json
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from atoll import Sandbox
from atoll.model.errors import AtollError
from atoll.testing.server import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.real

# State of every source of chance that a program keeps in its own memory: drawn from once, so that it is there.
WARM_PYTHON = """
import hashlib, os, random, secrets, ssl, uuid, numpy
random.seed(1), ssl.RAND_bytes(8), uuid.uuid4(), numpy.random.seed(1), secrets.token_hex(), hashlib.sha256(b"")
"""
DRAW_PYTHON = """
print(random.random()); print(uuid.uuid4()); print(ssl.RAND_bytes(16).hex()); print(os.urandom(16).hex())
print(numpy.random.random()); print(numpy.random.default_rng().random()); print(random.SystemRandom().random())
print(secrets.token_hex()); print(uuid.uuid1())
"""
WARM_NODE = "const c = require('crypto'); c.randomBytes(8); c.randomUUID(); Math.random()"
DRAW_NODE = """
{ const c = require('crypto'); console.log(Math.random()); console.log(c.randomBytes(16).toString('hex'))
console.log(c.randomUUID()); console.log(c.randomInt(2 ** 40)) }
"""
LOOK = "hostname; cat /etc/machine-id; cat /etc/hostname; cat /proc/sys/kernel/random/boot_id"
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
    return str(server.entry_of(sandbox.id)["token"])


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
        assert {len(row) for row in rows} == {9 + 4 + 4 + 2}
        for column in zip(*rows, strict=True):
            assert len(set(column)) == 3, column


# A package with an OpenSSL of its own; keys come from its state, and not from the kernel.
DRAW_CRYPTOGRAPHY = """
from cryptography.hazmat.primitives.asymmetric import ec
print(ec.generate_private_key(ec.SECP256R1()).private_numbers().private_value)
"""


def test_a_package_with_an_openssl_of_its_own_draws_anew(sandbox: Sandbox) -> None:
    """The server's own copy of it, brought into the sandbox, where the same Python can read it."""
    inside = sandbox.code.run("import sys; print(list(sys.version_info[:2]))", check=True).stdout
    if json.loads(inside) != list(sys.version_info[:2]):
        pytest.skip(f"a compiled package of this Python does not fit the sandbox's, which is {inside.strip()}")
    for name in ("cryptography", "cffi", "_cffi_backend"):
        found = importlib.util.find_spec(name)
        assert found is not None
        assert found.origin is not None
        origin = Path(found.origin)
        if origin.name == "__init__.py":
            sandbox.files.push(origin.parent, f"/tmp/packages/{name}")
        else:
            sandbox.files.write(f"/tmp/packages/{origin.name}", origin.read_bytes())
    sandbox.code.run("sys.path.insert(0, '/tmp/packages')", check=True)
    sandbox.code.run(DRAW_CRYPTOGRAPHY, check=True)
    drawn = [one.code.run(DRAW_CRYPTOGRAPHY, check=True).stdout for one in (*sandbox.fork(2), sandbox)]
    assert len(set(drawn)) == 3


def test_the_id_of_the_boot_is_of_a_sandbox_alone_and_stays(server: Server) -> None:
    """However it comes to be; and through sleep, for that is no boot."""
    read = "cat /proc/sys/kernel/random/boot_id"
    with server.create("base") as one, server.create("base") as other:
        ids = [sandbox.commands.run(read).stdout for sandbox in (one, other)]
        one.pause()
        one.resume()
        assert one.commands.run(read).stdout == ids[0]
        (copy,) = one.fork()
        again = Sandbox.create(one.snapshot(memory=False), url=server.url, api_key=server.key)
        ids += [sandbox.commands.run(read).stdout for sandbox in (copy, again)]
        assert one.commands.run(read).stdout == ids[0]
    assert len(set(ids)) == 4
    assert all(uuid.UUID(text.strip()).version == 4 for text in ids)


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


def test_a_busy_shell_lives_on_in_a_copy(sandbox: Sandbox) -> None:
    """With its variables and in the middle of what it does; what it draws from then on is its own."""
    sandbox.code.run("kept=1; RANDOM=7", language="bash", check=True)
    sandbox.code.start("touch busy; while [ ! -e go ]; do sleep 0.01; done; echo $RANDOM > drawn", language="bash")
    wait_until(lambda: sandbox.files.exists("busy"), 30, "it has begun")
    (copy,) = sandbox.fork(1)
    with copy:
        for one in (sandbox, copy):
            one.files.write("go", "")
        drawn = [what_was_drawn(one) for one in (sandbox, copy)]
        assert drawn[0] != drawn[1]
        assert copy.code.run("echo $kept", language="bash").stdout == "1\n"


def test_a_copy_whose_busy_interpreter_does_not_draw_is_refused(server: Server, sandbox: Sandbox) -> None:
    """Its code has taken away what it would have heard with."""
    before = server.boxes()
    code = "import signal, time\nfor number in range(35, 65): signal.signal(number, signal.SIG_DFL)\n"
    sandbox.code.start(code + "open('/home/user/busy', 'w').close()\nwhile True: time.sleep(1)")
    wait_until(lambda: sandbox.files.exists("busy"), 30, "it has begun")
    with pytest.raises(AtollError) as caught:
        sandbox.fork(1)
    assert caught.value.code == "reseed_failed"
    wait_until(lambda: server.boxes() == before, 30, "nothing of the copy is left")


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
