"""Where programs look for whom to trust: the authority of this sandbox is put there, or taken out again.

The places are the system's bundle, Java's own store, and a file by itself for programs that add one to what they know.
A copy of a sandbox begins with the disk of another, and must not go on trusting that one's authority. What a program
has read into its memory by then is out of reach.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable

from atoll.guest import javastore

BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
CERTIFICATE = "/usr/local/share/ca-certificates/atoll.crt"
_JAVA_STORE = "/etc/ssl/certs/java/cacerts"
_JAVA_ALIAS = "atoll"
_BEGIN = "# Atoll: the authority of this sandbox\n"
_END = "-----END CERTIFICATE-----\n"
_KEYTOOL_S_MAX = 20.0


def install(certificate: str) -> list[str]:
    """Have it trusted, and none that was before it; says what could not be done."""
    if _is_installed(certificate):
        return []
    # The certificate's file first: as long as it is there, something may have to be taken out.
    steps = {"certificate": _put_certificate, "java": _put_java, "bundle": _put_bundle}
    return forget() + [note for name, put in steps.items() if (note := _tried(name, put, certificate))]


def forget() -> list[str]:
    """Have no authority of ours trusted any more. Most sandboxes never had one, and that is seen at a glance."""
    try:
        with open(CERTIFICATE) as file:
            certificate = file.read()
    except FileNotFoundError:
        return []
    except (OSError, ValueError):
        certificate = ""  # it was replaced by something else: what is marked as ours still goes
    steps = {"bundle": _drop_bundle, "java": _drop_java, "certificate": _drop_certificate}
    return [note for name, drop in steps.items() if (note := _tried(name, drop, certificate))]


def variables() -> dict[str, str]:
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


def _tried(name: str, act: Callable[[str], None], certificate: str) -> str:
    try:
        act(certificate)
    except OSError as error:
        return f"{name}: {os.strerror(error.errno or 0)}"
    except ValueError:
        return f"{name}: not readable"
    return ""


def _is_installed(certificate: str) -> bool:
    """Whether nothing is to be done: a secret was changed, and whom to trust was not. The bundle is written last."""
    try:
        with open(BUNDLE) as file:
            return file.read().endswith(_BEGIN + certificate)
    except OSError:
        return False


def _put_certificate(certificate: str) -> None:
    os.makedirs(os.path.dirname(CERTIFICATE), exist_ok=True)
    with open(CERTIFICATE, "w") as file:
        file.write(certificate)
    os.chmod(CERTIFICATE, 0o644)


def _drop_certificate(_: str) -> None:
    os.unlink(CERTIFICATE)


def _put_bundle(certificate: str) -> None:
    os.makedirs(os.path.dirname(BUNDLE), exist_ok=True)
    _replace(BUNDLE, (_bundle() + _BEGIN + certificate).encode())


def _drop_bundle(certificate: str) -> None:
    """Also where the image's own tools have put it: they make the bundle anew from what they find."""
    before, begin, after = _bundle().partition(_BEGIN)
    if begin:
        after = after.partition(_END)[2]
    kept = before + after
    _replace(BUNDLE, (kept.replace(certificate, "") if certificate else kept).encode())


def _bundle() -> str:
    with contextlib.suppress(FileNotFoundError), open(BUNDLE) as file:
        return file.read()
    return ""


def _put_java(certificate: str) -> None:
    """Java has a store of its own; without Java there is nothing to do."""
    store = _java_store()
    if store is None:
        return
    try:
        der = javastore.der_of(certificate)
        _replace(_JAVA_STORE, javastore.with_certificate(store, _JAVA_ALIAS, der, time.time_ns() // 10**6))
    except javastore.NotReadable:
        _keytool("-importcert", "-noprompt", "-file", CERTIFICATE)


def _drop_java(certificate: str) -> None:
    store = _java_store()
    if store is None:
        return
    try:
        der = javastore.der_of(certificate) if certificate else b""
        _replace(_JAVA_STORE, javastore.without_certificate(store, _JAVA_ALIAS, der))
    except javastore.NotReadable:
        _keytool("-delete")


def _java_store() -> bytes | None:
    with contextlib.suppress(FileNotFoundError), open(_JAVA_STORE, "rb") as file:
        return file.read()
    return None


def _keytool(*command: str) -> None:
    """For a store of another format; Java's own program knows them all and takes its time."""
    keytool = shutil.which("keytool")
    if keytool is None:
        return
    argv = [keytool, "-keystore", _JAVA_STORE, "-storepass", javastore.PASSWORD, "-alias", _JAVA_ALIAS, *command]
    try:
        subprocess.run(argv, capture_output=True, timeout=_KEYTOOL_S_MAX, check=False, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        raise TimeoutError(110, "keytool") from None


def _replace(path: str, content: bytes) -> None:
    """A reader sees the old file or the new one."""
    fresh = f"{path}.atoll"
    with open(fresh, "wb") as file:
        file.write(content)
    os.chmod(fresh, 0o644)
    os.replace(fresh, path)
