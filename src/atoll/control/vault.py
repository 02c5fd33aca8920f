"""Values encrypted at rest: AES-256-GCM under a key from a file or the environment, bound to whose value it is.

The file holds one key a line, base64 of 32 bytes. The first encrypts; all decrypt. To rotate: put a new line on top and
start the server, which encrypts everything anew with it; then the old line can go.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import secrets

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from atoll.model.errors import Internal, InvalidArgument
from atoll.model.secret import Hidden

KEY_BYTES = 32
_NONCE_BYTES = 12


class Vault:
    """Seals and opens values."""

    def __init__(self, keys: bytes) -> None:
        self._keys = _parse(keys)
        self.key_id = next(iter(self._keys))

    def seal(self, value: str, label: str) -> str:
        """A value as the database holds it: the key's id and the sealed bytes. It opens under the same label only."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = AESGCM(self._keys[self.key_id]).encrypt(nonce, value.encode(), label.encode())
        return f"{self.key_id}:{base64.b64encode(nonce + sealed).decode('ascii')}"

    def open(self, sealed: str, label: str) -> Hidden:
        key_id, _, body = sealed.partition(":")
        key = self._keys.get(key_id)
        if key is None:
            raise Internal(
                "a secret was encrypted with a key that is not there",
                code="secrets_key_missing",
                hint="Put the old key back into the key file, below the new one.",
            )
        raw = base64.b64decode(body)
        try:
            return Hidden(AESGCM(key).decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], label.encode()).decode())
        except InvalidTag:
            raise Internal("a secret in the database has been changed", code="secret_damaged") from None

    def is_current(self, sealed: str) -> bool:
        return sealed.startswith(f"{self.key_id}:")


def key_new() -> bytes:
    """The content of a key file with one new key."""
    return base64.b64encode(secrets.token_bytes(KEY_BYTES)) + b"\n"


def _parse(text: bytes) -> dict[str, bytes]:
    keys: dict[str, bytes] = {}
    for line in text.split():
        try:
            key = base64.b64decode(line, validate=True)
        except binascii.Error:
            key = b""
        if len(key) != KEY_BYTES:
            raise InvalidArgument(
                "the key for secrets is not base64 of 32 bytes",
                code="invalid_settings",
                hint="Make one with: head -c 32 /dev/urandom | base64",
            )
        keys.setdefault(hashlib.sha256(key).hexdigest()[:12], key)
    if not keys:
        raise InvalidArgument("there is no key for secrets", code="invalid_settings")
    return keys
