"""Who wrote a snapshot's file: the key that this server signs with, and the keys that its operator trusts."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from atoll.model.errors import Forbidden, InvalidArgument
from atoll.node.snapshotfile.container import KEY_BYTES, Seal

_PURPOSE = b"atoll snapshot file 1\0"  # so that a signature of something else is never one of a file


@dataclass(frozen=True, slots=True)
class Signing:
    """Signs what is exported, and says whose memory may be imported."""

    own: Ed25519PrivateKey
    trusted: frozenset[bytes]

    @classmethod
    def open(cls, data: Path, trusted: frozenset[bytes] = frozenset()) -> Signing:
        """The key of a data directory, made at the first start; its public half lies beside it, to be passed on."""
        path = data / "export.key"
        try:
            own = Ed25519PrivateKey.from_private_bytes(path.read_bytes())
        except FileNotFoundError:
            own = Ed25519PrivateKey.generate()
            _write(path, own.private_bytes_raw(), 0o600)
        public = own.public_key().public_bytes_raw()
        _write(data / "export.pub", public.hex().encode() + b"\n", 0o644)
        return cls(own, trusted | {public})

    @property
    def public(self) -> bytes:
        return self.own.public_key().public_bytes_raw()

    def sign(self, digest: bytes) -> bytes:
        return self.own.sign(_PURPOSE + digest)

    def check_known(self, signer: bytes) -> None:
        """Before memory is read: is this somebody whose memory we take?"""
        if signer not in self.trusted:
            raise Forbidden(
                f"the snapshot has memory and is signed by {signer.hex()}, which this server does not trust",
                code="snapshot_untrusted",
                hint="Import it with memory=false; or have the operator add that key to the setting snapshot_trust.",
            )

    def check(self, seal: Seal) -> None:
        """Before memory is believed: has the one who is named at the beginning really signed it?"""
        self.check_known(seal.signer)
        try:
            Ed25519PublicKey.from_public_bytes(seal.signer).verify(seal.signature, _PURPOSE + seal.digest)
        except InvalidSignature:
            raise Forbidden("the snapshot's signature is wrong", code="snapshot_untrusted") from None


def parse_keys(text: str) -> frozenset[bytes]:
    """Public keys in hexadecimal, separated by commas or spaces, as in a server's export.pub."""
    keys = set()
    for word in text.replace(",", " ").split():
        try:
            key = bytes.fromhex(word)
        except ValueError:
            key = b""
        if len(key) != KEY_BYTES:
            raise InvalidArgument(
                f"snapshot_trust: {word[:80]!r} is not a key of {KEY_BYTES} bytes in hexadecimal",
                code="invalid_settings",
            )
        keys.add(key)
    return frozenset(keys)


def _write(path: Path, data: bytes, mode: int) -> None:
    draft = path.with_name(path.name + ".new")
    draft.unlink(missing_ok=True)
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
