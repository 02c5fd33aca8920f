"""What a sandbox knows of its network: whom to trust, and the placeholders that stand for its secrets.

The certificate goes where programs look for certificates: the system's bundle, and variables for those that bring their
own (Python's requests, Node, git, Java). It is public; the key that belongs to it never comes in here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from typing import TYPE_CHECKING

from atoll.guest import javastore
from atoll.guest.channel import Channel
from atoll.guest.failure import Refused
from atoll.guest.params import Params, environment, record, text
from atoll.model import limits

if TYPE_CHECKING:
    from atoll.guest.agent import Agent

BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
CERTIFICATE = "/usr/local/share/ca-certificates/atoll.crt"
_JAVA_STORE = "/etc/ssl/certs/java/cacerts"
_JAVA_ALIAS = "atoll"
_BEGIN = "# Atoll: the authority of this sandbox\n"
_KEYTOOL_S_MAX = 20.0


def change(agent: Agent, params: Params, channel: Channel) -> None:
    """All values are checked before the first is set. Programs that run already keep what they have."""
    certificate = text(params, "ca", "", chars_max=64 * limits.KIB)
    env = environment(params) if "env" in params else {}
    files = record(params, "files")
    if certificate and "PRIVATE KEY" in certificate:
        raise Refused("invalid_argument", "a certificate is wanted here")
    for path, content in files.items():
        if not path.startswith("/") or not isinstance(content, str) or len(content) > limits.KIB:
            raise Refused("invalid_argument", "files are short texts by absolute path")
    notes: list[str] = []
    if certificate:
        env = {**_trust_variables(), **env}
        for install in () if _is_installed(certificate) else (_install_certificate, _install_java, _install_bundle):
            try:
                install(certificate)
            except OSError as error:
                notes.append(f"{install.__name__.strip('_')}: {os.strerror(error.errno or 0)}")
    for path, content in files.items():
        try:
            _write(path, content, agent)
        except OSError as error:
            notes.append(f"{path}: {os.strerror(error.errno or 0)}")
    agent.env = {**agent.env, **env}
    channel.send_ok({"notes": notes})


def _trust_variables() -> dict[str, str]:
    """For programs that do not look at the system's bundle by themselves."""
    return {
        "SSL_CERT_FILE": BUNDLE,
        "REQUESTS_CA_BUNDLE": BUNDLE,
        "CURL_CA_BUNDLE": BUNDLE,
        "GIT_SSL_CAINFO": BUNDLE,
        "PIP_CERT": BUNDLE,
        "NODE_EXTRA_CA_CERTS": CERTIFICATE,
        "DENO_CERT": CERTIFICATE,
    }


def _is_installed(certificate: str) -> bool:
    """Whether nothing is to be done: a secret was changed, and whom to trust was not. The bundle is written last."""
    try:
        with open(BUNDLE) as file:
            return file.read().endswith(_BEGIN + certificate)
    except OSError:
        return False


def _install_certificate(certificate: str) -> None:
    os.makedirs(os.path.dirname(CERTIFICATE), exist_ok=True)
    with open(CERTIFICATE, "w") as file:
        file.write(certificate)
    os.chmod(CERTIFICATE, 0o644)


def _install_bundle(certificate: str) -> None:
    os.makedirs(os.path.dirname(BUNDLE), exist_ok=True)
    try:
        with open(BUNDLE) as file:
            before = file.read().partition(_BEGIN)[0]
    except FileNotFoundError:
        before = ""
    fresh = f"{BUNDLE}.atoll"
    with open(fresh, "w") as file:
        file.write(before + _BEGIN + certificate)
    os.chmod(fresh, 0o644)
    os.replace(fresh, BUNDLE)


def _install_java(certificate: str) -> None:
    """Java has a store of its own; without Java there is nothing to do."""
    try:
        with open(_JAVA_STORE, "rb") as file:
            before = file.read()
    except FileNotFoundError:
        return
    try:
        after = javastore.with_certificate(before, _JAVA_ALIAS, javastore.der_of(certificate), time.time_ns() // 10**6)
    except javastore.NotReadable:
        _install_by_keytool()
        return
    fresh = f"{_JAVA_STORE}.atoll"
    with open(fresh, "wb") as file:
        file.write(after)
    os.chmod(fresh, 0o644)
    os.replace(fresh, _JAVA_STORE)


def _install_by_keytool() -> None:
    """For a store of another format; Java's own program knows them all and takes its time."""
    keytool = shutil.which("keytool")
    if keytool is None:
        return
    base = [keytool, "-keystore", _JAVA_STORE, "-storepass", javastore.PASSWORD, "-alias", _JAVA_ALIAS]
    for argv in ([*base, "-delete"], [*base, "-importcert", "-noprompt", "-file", CERTIFICATE]):
        try:
            subprocess.run(argv, capture_output=True, timeout=_KEYTOOL_S_MAX, check=False, stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired:
            raise TimeoutError(110, "keytool") from None


def _write(path: str, content: str, agent: Agent) -> None:
    """A small file that belongs to the default user, in folders that are made where they are missing."""
    user = agent.user_of({})
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        os.makedirs(folder, exist_ok=True)
        os.chown(folder, user.uid, user.gid)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.fchown(fd, user.uid, user.gid)
        os.write(fd, content.encode())
    finally:
        os.close(fd)
