"""TLS of the server: a certificate that the operator brings, or a CA of the server's own that signs for each name.

A wildcard under a single label (`*.localhost`) is refused by OpenSSL and browsers, so our CA signs a certificate for
each host name that is asked for, and only for names under the domain. All of them share one key.
"""

from __future__ import annotations

import datetime
import ipaddress
import ssl
import tempfile
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from atoll.app import privatefile
from atoll.model import limits
from atoll.model.errors import InvalidArgument

CA_DAYS = 3650
LEAF_DAYS = 397  # browsers refuse certificates that are valid for longer
AGAIN = datetime.timedelta(days=30)  # a server that runs for years shows none that is older
BEFORE = datetime.timedelta(hours=1)  # clocks that are a little behind

Now = Callable[[], datetime.datetime]


def ca_path(data: Path) -> Path:
    """The certificate that callers trust; no secret."""
    return data / "ca" / "ca.pem"


@dataclass(frozen=True, slots=True)
class Authority:
    """A CA of our own, allowed to sign for one domain and its names only."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey
    domain: str

    @classmethod
    def open(cls, data: Path, domain: str, now: datetime.datetime) -> Authority:
        """The CA of a data directory, made at first use. Another domain needs another CA: this one may not sign."""
        key_path = data / "ca" / f"{domain}.key"
        certificate_path = data / "ca" / f"{domain}.pem"
        key = _key_load(privatefile.read_or_make(key_path, _key_new))
        pem = privatefile.read_or_make(certificate_path, lambda: _ca_new(key, domain, now))
        if not ca_path(data).exists() or ca_path(data).read_bytes() != pem:
            privatefile.write(ca_path(data), pem)
        for path in (certificate_path, ca_path(data)):
            path.chmod(0o644)
        certificate_path.parent.chmod(0o755)
        return cls(x509.load_pem_x509_certificate(pem), key, domain)

    def signed(self, name: str, leaf_key: ec.EllipticCurvePrivateKey, now: datetime.datetime) -> bytes:
        """A certificate for one name, and for this machine's own addresses."""
        names: list[x509.GeneralName] = [x509.DNSName(name), x509.DNSName("localhost")]
        names += [x509.IPAddress(ipaddress.ip_address(address)) for address in ("127.0.0.1", "::1")]
        certificate = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])]))
            .issuer_name(self.certificate.subject)
            .public_key(leaf_key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - BEFORE)
            .not_valid_after(now + datetime.timedelta(days=LEAF_DAYS))
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
            .sign(self.key, hashes.SHA256())
        )
        return certificate.public_bytes(serialization.Encoding.PEM)


class NamedContexts:
    """A context for each name that callers ask for; the least recently used are forgotten, old ones made anew."""

    def __init__(self, authority: Authority, now: Now) -> None:
        self._authority = authority
        self._now = now
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._contexts: OrderedDict[str, tuple[datetime.datetime, ssl.SSLContext]] = OrderedDict()
        self.default = self._context(authority.domain)
        self.default.sni_callback = self._choose

    def _choose(self, connection: ssl.SSLObject, name: str | None, _default: ssl.SSLContext) -> None:
        """Names that are not under the domain get its own certificate, and the caller refuses that."""
        domain = self._authority.domain
        under = name and name.lower().endswith("." + domain) and len(name) <= limits.HOST_CHARS_MAX
        connection.context = self._known(name.lower() if name and under else domain)

    def _known(self, name: str) -> ssl.SSLContext:
        now = self._now()
        made_at, found = self._contexts.get(name, (now, None))
        if found is None or abs(now - made_at) > AGAIN:
            made_at, found = now, self._context(name)
        self._contexts[name] = made_at, found
        self._contexts.move_to_end(name)
        while len(self._contexts) > limits.TLS_NAMES_MAX:
            self._contexts.popitem(last=False)
        return found

    def _context(self, name: str) -> ssl.SSLContext:
        context = _server_context()
        pem = self._authority.signed(name, self._key, self._now()) + _key_pem(self._key)
        with tempfile.NamedTemporaryFile() as file:  # 0600; the ssl module reads files only
            file.write(pem)
            file.flush()
            context.load_cert_chain(file.name)
        return context


def own_context(data: Path, domain: str) -> ssl.SSLContext:
    """TLS by the CA of this data directory."""
    authority = Authority.open(data, domain, _utc_now())
    return NamedContexts(authority, _utc_now).default


def _utc_now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def brought_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """TLS by the operator's own certificate."""
    context = _server_context()
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise InvalidArgument(
            f"tls_cert and tls_key cannot be used: {error}",
            code="invalid_settings",
            hint="Both are PEM files; the certificate comes first in its file, then those that signed it.",
        ) from error
    return context


def _server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context


def _ca_new(key: ec.EllipticCurvePrivateKey, domain: str, now: datetime.datetime) -> bytes:
    """The CA can sign for the domain and for this machine alone, so that trusting it risks nothing else."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"Atoll CA for {domain}"[:64])])
    permitted: list[x509.GeneralName] = [x509.DNSName(domain), x509.DNSName("localhost")]
    permitted += [x509.IPAddress(ipaddress.ip_network(network)) for network in ("127.0.0.0/8", "::1/128")]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BEFORE)
        .not_valid_after(now + datetime.timedelta(days=CA_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.NameConstraints(permitted_subtrees=permitted, excluded_subtrees=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(_CA_USAGE, critical=True)
        .sign(key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM)


_CA_USAGE = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


def _key_new() -> bytes:
    return _key_pem(ec.generate_private_key(ec.SECP256R1()))


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _key_load(pem: bytes) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pem, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key
