"""Certificates: made once, for names under the domain only, and those that an operator brings."""

from __future__ import annotations

import datetime
import socket
import ssl
import threading
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from atoll.app import tls
from atoll.model import limits
from atoll.model.errors import InvalidArgument

NOW = datetime.datetime.now(datetime.UTC)


def handshake(server: ssl.SSLContext, ca: Path, name: str) -> bytes:
    """The certificate that is shown. Raises what a client that trusts the CA raises."""
    client = ssl.create_default_context(cafile=ca)
    near, far = socket.socketpair()

    def serve() -> None:
        try:
            server.wrap_socket(far, server_side=True).close()
        except (ssl.SSLError, OSError):
            far.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        near.settimeout(10)
        with client.wrap_socket(near, server_hostname=name) as link:
            return link.getpeercert(binary_form=True) or b""
    finally:
        near.close()
        thread.join(10)


def test_every_name_under_the_domain_is_accepted_and_no_other(tmp_path: Path) -> None:
    context = tls.own_context(tmp_path, "localhost")
    ca = tls.ca_path(tmp_path)
    for name in ("localhost", "8000-sb1.localhost", "8000-SB1.localhost", "127.0.0.1"):
        handshake(context, ca, name)
    for name in ("example.org", "localhost.example.org"):
        with pytest.raises(ssl.SSLCertVerificationError):
            handshake(context, ca, name)


def test_the_ca_stays_the_same_and_its_key_is_private(tmp_path: Path) -> None:
    first = tls.Authority.open(tmp_path, "localhost", NOW)
    again = tls.Authority.open(tmp_path, "localhost", NOW)
    assert first.certificate == again.certificate
    assert (tmp_path / "ca" / "localhost.key").stat().st_mode & 0o777 == 0o600
    assert tls.ca_path(tmp_path).stat().st_mode & 0o777 == 0o644


def test_another_domain_has_another_ca(tmp_path: Path) -> None:
    handshake(tls.own_context(tmp_path, "localhost"), tls.ca_path(tmp_path), "a.localhost")
    other = tls.own_context(tmp_path, "boxes.example.org")
    handshake(other, tls.ca_path(tmp_path), "8000-sb1.boxes.example.org")


def test_names_that_are_asked_for_take_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TLS_NAMES_MAX", 2)
    contexts = tls.NamedContexts(tls.Authority.open(tmp_path, "localhost", NOW), lambda: NOW)
    for number in range(5):
        contexts._known(f"{number}.localhost")
    assert list(contexts._contexts) == ["3.localhost", "4.localhost"]


def test_a_server_that_runs_for_years_never_shows_an_old_certificate(tmp_path: Path) -> None:
    """Neither of a name nor of the domain, whose context every connection begins with."""
    now = NOW - datetime.timedelta(days=tls.LEAF_DAYS + 10)  # what is made then is not valid any more today
    context = tls.NamedContexts(tls.Authority.open(tmp_path, "localhost", now), lambda: now).default
    for name in ("localhost", "a.localhost", "127.0.0.1"):
        with pytest.raises(ssl.SSLCertVerificationError):
            handshake(context, tls.ca_path(tmp_path), name)
    now = NOW
    for name in ("localhost", "a.localhost", "127.0.0.1"):
        shown = handshake(context, tls.ca_path(tmp_path), name)
        assert handshake(context, tls.ca_path(tmp_path), name) == shown, "it is made once"


def test_a_certificate_of_the_operators_own(tmp_path: Path) -> None:
    authority = tls.Authority.open(tmp_path, "example.org", NOW)
    key = ec.generate_private_key(ec.SECP256R1())
    (tmp_path / "cert.pem").write_bytes(authority.signed("a.example.org", key, NOW))
    (tmp_path / "key.pem").write_bytes(tls._key_pem(key))
    handshake(tls.brought_context(tmp_path / "cert.pem", tmp_path / "key.pem"), tls.ca_path(tmp_path), "a.example.org")


def test_a_certificate_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("no certificate")
    for path in (tmp_path / "x", tmp_path / "missing"):
        with pytest.raises(InvalidArgument, match="tls_cert"):
            tls.brought_context(path, path)
