"""`atoll ca`: the certificate authority of the local server, shown and made known to this machine."""

from __future__ import annotations

import hashlib
import os
import ssl
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from atoll.client._config import data_dir
from atoll.model.errors import NotFound, Unavailable

STORE = Path("/usr/local/share/ca-certificates")
CHOICE = Path("/etc/ca-certificates.conf")  # which of the machine's certificates are wanted, and which are not
INSTALL_S_MAX = 60


@click.group()
def ca() -> None:
    """Show and install the CA of a server with TLS."""


@ca.command()
@click.option("--data", type=click.Path(path_type=Path), help="The server's data directory [/var/lib/atoll].")
@click.option("--pem", is_flag=True, help="Print the certificate itself.")
def show(data: Path | None, pem: bool) -> None:
    """Show where the CA's certificate is, and its fingerprint."""
    path = _path(data)
    text = path.read_text("ascii")
    if pem:
        click.echo(text, nl=False)
        return
    click.echo(f"file         {path}")
    click.echo(f"SHA-256      {fingerprint(text)}")
    click.echo(f"use it with  curl --cacert {path} ..., or ATOLL_CA={path}")


@ca.command()
@click.option("--data", type=click.Path(path_type=Path), help="The server's data directory [/var/lib/atoll].")
def install(data: Path | None) -> None:
    """Make the programs of this machine trust the CA. Needs root. Browsers with a store of their own do not follow."""
    path = _path(data)
    target = STORE / f"atoll-{fingerprint(path.read_text('ascii'))[:8]}.crt"
    with _reported():
        target.write_bytes(path.read_bytes())
        _update()
    click.echo(f"installed {target}; `atoll ca remove` takes it back")


@ca.command()
@click.option("--data", type=click.Path(path_type=Path), help="The server's data directory [/var/lib/atoll].")
def remove(data: Path | None) -> None:
    """Take the CA back out of the machine's store. Needs root."""
    target = STORE / f"atoll-{fingerprint(_path(data).read_text('ascii'))[:8]}.crt"
    with _reported(), tempfile.NamedTemporaryFile("w", prefix="atoll-ca-") as chosen:
        target.unlink(missing_ok=True)
        # A file that is gone is not enough: links to it would stay, and stores that are built from the machine's, such
        # as Java's, would trust it for ever. What is named as unwanted goes from all of them.
        known = CHOICE.read_text() if CHOICE.exists() else ""
        chosen.write(f"{known}\n!{target.name}\n")
        chosen.flush()
        _update("--certsconf", chosen.name)
    click.echo(f"removed {target}")


@contextmanager
def _reported() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Unavailable(
            f"the machine's store of CAs cannot be changed: {error.strerror or error}",
            code="cannot_install",
            hint="It needs root, and the package ca-certificates.",
        ) from error


def fingerprint(pem: str) -> str:
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()


def _path(data: Path | None) -> Path:
    path = (data or data_dir(os.environ)) / "ca" / "ca.pem"
    if not path.exists():
        raise NotFound(
            f"there is no CA at {path}",
            code="no_ca",
            hint="A server makes one when it starts with `atoll serve --tls`.",
        )
    return path


def _update(*options: str) -> None:
    """Build the machine's store anew. An OSError says why it cannot be."""
    argv = ["update-ca-certificates", *options]
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        try:
            code = process.wait(INSTALL_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            raise TimeoutError(f"{argv[0]} takes longer than {INSTALL_S_MAX} s") from None
    if code != 0:
        raise OSError(f"{argv[0]} ended with {code}")
