"""A certificate authority for one sandbox: what it signs is believed in that sandbox and nowhere else.

The key lies in the server's data directory, readable by root only; it goes with the sandbox and never into it.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import ssl
from collections import OrderedDict
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from atoll.model import limits

_DAY = datetime.timedelta(days=1)
_LEAF_DAYS = 7
_PEM = serialization.Encoding.PEM


class Authority:
    """Signs certificates for names, as the guest's clients ask for them."""

    def __init__(self, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        self._key = key
        self._certificate = certificate
        self._contexts: OrderedDict[tuple[str, tuple[str, ...]], tuple[datetime.datetime, ssl.SSLContext]] = (
            OrderedDict()
        )

    @classmethod
    def open(cls, path: Path | None) -> Authority:
        """The authority that is kept in a file; made if there is none. Without a file it is nobody's after this."""
        if path is not None:
            with contextlib.suppress(OSError, ValueError):
                return cls._load(path.read_bytes())
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _ca_certificate(key)
        if path is not None:
            _keep(path, _private_pem(key) + certificate.public_bytes(_PEM))
        return cls(key, certificate)

    @classmethod
    def _load(cls, pem: bytes) -> Authority:
        key = serialization.load_pem_private_key(pem, password=None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError("not a key of ours")
        return cls(key, x509.load_pem_x509_certificate(pem))

    @property
    def certificate_pem(self) -> str:
        """What the sandbox must trust."""
        return self._certificate.public_bytes(_PEM).decode("ascii")

    def context(self, name: str, protocols: tuple[str, ...]) -> ssl.SSLContext:
        """The server's side of TLS for a name; a new one each day, because a sandbox outlives its certificates."""
        key, now = (name, protocols), _now()
        made_at, found = self._contexts.get(key, (now, None))
        if found is None or abs(now - made_at) > _DAY:  # also if the clock was put back since
            found = self._make_context(name, protocols)
            self._contexts[key] = now, found
            if len(self._contexts) > limits.LEAF_CERTIFICATES_MAX:
                self._contexts.popitem(last=False)
        return found

    def _make_context(self, name: str, protocols: tuple[str, ...]) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(list(protocols))
        # The standard library reads certificates from files only; this one never touches a disk.
        memory = os.memfd_create("leaf", os.MFD_CLOEXEC)
        try:
            os.write(memory, _private_pem(self._key) + self._leaf(name) + self._certificate.public_bytes(_PEM))
            context.load_cert_chain(f"/proc/self/fd/{memory}")
        finally:
            os.close(memory)
        return context

    def _leaf(self, name: str) -> bytes:
        # A common name has at most 64 letters; clients read the alternative name.
        builder = _builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])]), self._key, days=_LEAF_DAYS)
        return (
            builder.issuer_name(self._certificate.subject)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(_authority_id(self._key), critical=False)
            .sign(self._key, hashes.SHA256())
            .public_bytes(_PEM)
        )


def _keep(path: Path, pem: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_suffix(".new")
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(pem)
    draft.replace(path)


def _ca_certificate(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Atoll sandbox authority")])
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        _builder(subject, key, days=3650)
        .issuer_name(subject)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def _authority_id(key: ec.EllipticCurvePrivateKey) -> x509.AuthorityKeyIdentifier:
    return x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())


def _builder(subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, days: int) -> x509.CertificateBuilder:
    now = _now()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)  # a sandbox whose clock is a little behind
        .not_valid_after(now + days * _DAY)
    )


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    plain = serialization.NoEncryption()
    return key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, plain)
