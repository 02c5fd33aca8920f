"""Whom a copy of a sandbox trusts: its own authority, and no longer that of the sandbox it was made of.

Somebody who has the key of an authority plays a server that the proxy passes on unopened. Where the authority is
trusted the client inside believes it; everywhere else it must not.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from atoll import Sandbox
from atoll.guest import javastore
from atoll.node.egress.ca import Authority
from atoll.testing.server import Server
from tests.upstream import OTHER, TLS_PORT, Upstream, Web

pytestmark = pytest.mark.real

VALUE = "canary-0d9f2b774e"
PLAYED_PORT = 7443
POLICY = [f"good.test:{TLS_PORT}", f"other.test:{PLAYED_PORT}"]
JAVA_STORE = "/etc/ssl/certs/java/cacerts"
USE = f'curl -sS -H "X-Key: $TOKEN" https://good.test:{TLS_PORT}/x'
BELIEVE = f"curl -sS https://other.test:{PLAYED_PORT}/believed"
# Node reads the certificate's own file, the others the system's bundle.
BELIEVE_NODE = f"node -e \"fetch('https://other.test:{PLAYED_PORT}/believed').then(r => r.text()).then(console.log)\""


@pytest.fixture(scope="module")
def server(servers: Upstream, make_data_dir: Callable[[], Path]) -> Iterator[Server]:
    running = Server(make_data_dir(), servers.settings)
    running.start()
    secret = {"value": VALUE, "hosts": [f"good.test:{TLS_PORT}"]}
    assert running.request("PUT", "/v1/secrets/TOKEN", json=secret).status_code == 200
    yield running
    running.close()


def authority_of(server: Server, sandbox: Sandbox) -> Authority:
    path = server.data / "network" / sandbox.id / "authority.pem"
    assert path.exists()
    return Authority.open(path)


@contextmanager
def played_by(authority: Authority) -> Iterator[None]:
    """A server for other.test whose certificate this authority has signed."""
    web = Web((OTHER, PLAYED_PORT), authority.context("other.test", ("http/1.1",)))
    threading.Thread(target=web.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield
    finally:
        web.shutdown()
        web.server_close()


def believes(sandbox: Sandbox, line: str = BELIEVE) -> bool:
    return "GET /believed" in sandbox.commands.run(line, timeout_s=30).stdout


@pytest.fixture(scope="module")
def parent(server: Server) -> Iterator[Sandbox]:
    with server.create("code", policy=POLICY, secrets=["TOKEN"]) as parent:
        parent.commands.run(USE, check=True)
        yield parent


def java_trusts(sandbox: Sandbox, authority: Authority) -> bool:
    return javastore.der_of(authority.certificate_pem) in sandbox.files.read_bytes(JAVA_STORE)


def test_a_fork_has_an_authority_of_its_own_and_forgets_its_parents(
    server: Server, servers: Upstream, parent: Sandbox
) -> None:
    """The key of either is useless against the other; each is believed at home, which is the positive control."""
    (fork,) = parent.fork(1)
    with fork:
        for one in (parent, fork):
            before = len(servers.tls.seen)
            one.commands.run(USE, check=True)
            assert VALUE in servers.tls.seen[before], "its own proxy is believed, so the secret gets there"
        for one, other in ((parent, fork), (fork, parent)):
            authority = authority_of(server, one)
            with played_by(authority):
                for line in (BELIEVE, BELIEVE_NODE):
                    assert believes(one, line)
                    assert not believes(other, line)
            assert java_trusts(one, authority)
            assert not java_trusts(other, authority)


@pytest.mark.parametrize("memory", [True, False])
def test_a_sandbox_made_of_a_snapshot_does_not_trust_who_was_copied(
    server: Server, parent: Sandbox, memory: bool
) -> None:
    """Also where nothing has to be opened for it, so that it has no authority at all; and it has no secret."""
    authority = authority_of(server, parent)
    snapshot = parent.snapshot(memory=memory)
    with played_by(authority), server.create(snapshot.id, policy=POLICY) as copy:
        assert believes(parent)
        assert not believes(copy)
        assert not java_trusts(copy, authority)
        assert not (server.data / "network" / copy.id / "authority.pem").exists()
        assert copy.commands.run("printf %s $TOKEN").stdout == ""
        bundle = copy.files.read("/etc/ssl/certs/ca-certificates.crt")
        assert bundle.count("BEGIN CERTIFICATE") > 50, "what the image itself trusted is trusted still"
