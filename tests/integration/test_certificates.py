"""Who trusts a server with TLS: by its own CA, put into a machine's store and taken back, or by another certificate."""

from __future__ import annotations

import ipaddress
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from atoll.cli.ca import CHOICE, STORE
from atoll.testing.server import Server
from tests.ingress_stage import inside
from tests.upstream import certificate

pytestmark = pytest.mark.real

CERTIFICATES = Path("/etc/ssl/certs")
HOOKS = Path("/etc/ca-certificates/update.d")
DOMAIN = "sandboxes.test"
NOT_TRUSTED = 60  # curl's exit code


class Machine:
    """This machine with stores of CAs of its own: a mount namespace each time, over the real ones.

    A few of its certificates are wanted, so that building a store takes no time.
    A hook takes the place of those that build further stores, such as Java's, and writes down what they would hear.
    """

    def __init__(self, folder: Path) -> None:
        self._stores = (folder / "local", folder / "certs")
        self._told = folder / "told"
        chosen = [line for line in CHOICE.read_text().split("\n") if line and line[0] not in "!#"]
        (folder / "conf").write_text("\n".join(chosen[:3]) + "\n")
        for store in (*self._stores, folder / "hooks"):
            store.mkdir()
        self._mounts = {"local": STORE, "certs": CERTIFICATES, "hooks": HOOKS, "conf": CHOICE}
        self._folder = folder
        hook = folder / "hooks" / "record"
        hook.write_text(f"#!/bin/sh\ncat >> {shlex.quote(str(self._told))}\n")
        hook.chmod(0o755)

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        mounts = [
            shlex.join(["mount", "--bind", f"{self._folder}/{name}", str(at)]) for name, at in self._mounts.items()
        ]
        line = " && ".join([*mounts, "exec " + shlex.join(argv)])
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("SSL_", "CURL_"))}
        return subprocess.run(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", line],
            capture_output=True,
            text=True,
            timeout=60,
            env=environment,
            check=False,
        )

    def atoll(self, *words: str) -> str:
        finished = self.run(sys.executable, "-m", "atoll", *words)
        assert finished.returncode == 0, finished.stderr
        return finished.stdout

    def trusts(self, url: str) -> bool:
        """Whether curl and Python do, without being told whom to trust."""
        port = urlsplit(url).port
        code = self.run("curl", "-sS", "--noproxy", "*", f"https://localhost:{port}/health").returncode
        assert code in (0, NOT_TRUSTED)
        fetch = f"import urllib.request as u; print(u.urlopen('https://localhost:{port}/health').status)"
        said = self.run("/usr/bin/python3", "-c", fetch)
        assert (said.stdout == "200\n") == (code == 0), said.stderr
        return code == 0

    def told(self) -> list[str]:
        """What further stores have heard since the last time: what came and what went."""
        lines = self._told.read_text().split()
        self._told.write_text("")
        return [line for line in lines if "/atoll-" in line]

    def content(self) -> dict[str, str]:
        """Every file and link of the stores, and what is in it."""
        found = {}
        for scratch in self._stores:
            for path in sorted(scratch.rglob("*")):
                if path.is_symlink():
                    found[str(path)] = "-> " + os.readlink(path)
                elif path.is_file():
                    found[str(path)] = path.read_bytes().hex()
        return found


def test_a_ca_is_installed_and_removed_without_a_trace(make_server: Callable[..., Server], tmp_path: Path) -> None:
    server = make_server(ATOLL_TLS="1")
    machine, data = Machine(tmp_path), ("--data", str(server.data))
    assert machine.run("update-ca-certificates").returncode == 0
    before, real, _ = machine.content(), sorted(os.listdir(CERTIFICATES)), machine.told()
    assert not machine.trusts(server.url)
    machine.atoll("ca", "install", *data)
    assert machine.trusts(server.url)
    (added,) = machine.told()
    assert added.startswith("+")
    machine.atoll("ca", "remove", *data)
    assert not machine.trusts(server.url)
    assert machine.content() == before
    assert machine.told() == ["-" + added[1:]], "so that no store that is built from this one keeps it"
    assert sorted(os.listdir(CERTIFICATES)) == real, "the test has left this machine's own store alone"


def test_a_certificate_from_elsewhere(make_server: Callable[..., Server], tmp_path: Path) -> None:
    """For a domain and all names below it, signed by a CA that the server knows nothing of; no other is made."""
    ca, chain, key = brought(tmp_path)
    server = make_server(ATOLL_DOMAIN=DOMAIN, ATOLL_TLS_CERT=str(chain), ATOLL_TLS_KEY=str(key))
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("ATOLL_CA", str(ca))
        with server.create() as sandbox:
            host, port = f"8000-{inside(sandbox).id}.{DOMAIN}", urlsplit(server.url).port
            url = f"https://{host}:{port}/there"
            assert sandbox.ports.url(8000).startswith(f"https://{host}:{port}/")
            argv = ["curl", "-sS", "--noproxy", "*", "--resolve", f"{host}:{port}:127.0.0.1"]
            argv += ["-H", f"X-API-Key: {server.key}"]
            refused = subprocess.run([*argv, url], capture_output=True, timeout=20, check=False)
            assert refused.returncode == NOT_TRUSTED, "a client that does not know the CA goes no further"
            for version in ("--http1.1", "--http2"):
                call = [*argv, version, "--cacert", str(ca), "-w", "\n%{http_version}", url]
                said = subprocess.run(call, capture_output=True, text=True, timeout=20, check=True).stdout
                assert json.loads(said.rpartition("\n")[0])["path"] == "/there"
                assert said.endswith(version.removeprefix("--http"))
            other = ["curl", "-sS", "--noproxy", "*", "--cacert", str(ca), f"https://localhost:{port}/health"]
            assert subprocess.run(other, capture_output=True, timeout=20, check=False).returncode == NOT_TRUSTED
    assert not (server.data / "ca").exists()
    shown = [sys.executable, "-m", "atoll", "ca", "show", "--data", str(server.data)]
    assert "there is no CA" in subprocess.run(shown, capture_output=True, text=True, timeout=20, check=False).stderr


def brought(folder: Path) -> tuple[Path, Path, Path]:
    """A CA, and a certificate by it for the domain, as an operator gets them: the CA's, the chain and the key."""
    ca_key, leaf_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "an operator's CA")])
    ca = certificate(issuer, issuer, ca_key, ca_key, x509.BasicConstraints(True, None))
    names: list[x509.GeneralName] = [x509.DNSName(DOMAIN), x509.DNSName(f"*.{DOMAIN}")]
    names.append(x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, DOMAIN)])
    leaf = certificate(subject, issuer, leaf_key, ca_key, x509.SubjectAlternativeName(names))
    for name, made in (("ca.pem", ca), ("chain.pem", leaf)):
        (folder / name).write_bytes(made.public_bytes(serialization.Encoding.PEM))
    pem = leaf_key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "key.pem").write_bytes(pem)
    return folder / "ca.pem", folder / "chain.pem", folder / "key.pem"
