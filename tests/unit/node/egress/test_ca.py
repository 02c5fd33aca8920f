"""The authority of one sandbox: certificates that are good for as long as it lives."""

from __future__ import annotations

import contextlib
import datetime
import ssl

import pytest
from cryptography import x509

from atoll.node.egress import ca
from atoll.node.egress.ca import Authority

HTTP1 = ("http/1.1",)
DAY = datetime.timedelta(days=1)


def shown(authority: Authority, name: str) -> x509.Certificate:
    """The certificate that a client is shown now."""
    near_in, near_out, far_in, far_out = (ssl.MemoryBIO() for _ in range(4))
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE  # by the moved clock it is judged below
    client = trusting.wrap_bio(near_in, near_out, server_hostname=name)
    server = authority.context(name, HTTP1).wrap_bio(far_in, far_out, server_side=True)
    for _ in range(4):
        for side in (client, server):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
        far_in.write(near_out.read())
        near_in.write(far_out.read())
    der = client.getpeercert(binary_form=True)
    assert der is not None
    return x509.load_der_x509_certificate(der)


def test_a_sandbox_that_lives_for_months_is_never_shown_an_old_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    monkeypatch.setattr(ca, "_now", lambda: now)
    authority = Authority.open(None)
    first = authority.context("good.test", HTTP1)
    assert authority.context("good.test", HTTP1) is first, "within a day it is made once"
    for _ in range(20):
        now += DAY / 2
        leaf = shown(authority, "good.test")
        assert leaf.not_valid_before_utc < now < leaf.not_valid_after_utc - 5 * DAY
    now -= 40 * DAY  # a clock that was wrong and is put right
    leaf = shown(authority, "good.test")
    assert leaf.not_valid_before_utc < now < leaf.not_valid_after_utc
