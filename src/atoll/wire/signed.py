"""Signed addresses of files: what one grants, as a text that only the server can have made.

The text is `<grant>.<signature>`, both base64url; the grant is JSON and no secret, the signature is HMAC-SHA256 of it.
Nothing is read out of a grant whose signature does not fit.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

import msgspec

from atoll.model import limits
from atoll.model.errors import Unauthenticated
from atoll.wire import codec

METHODS = ("GET", "PUT")


class FileGrant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who may do what with which file, until when (seconds since 1970)."""

    owner: str
    key_id: str
    sandbox: str
    method: str
    path: str
    user: str | None
    expires_at_s: int


def sign(secret: bytes, grant: FileGrant) -> str:
    body = _base64(codec.encode(grant))
    return f"{body}.{_base64(_digest(secret, body))}"


def verify(secret: bytes, text: str, method: str, now_s: float) -> FileGrant:
    """The grant in this text. Whatever is wrong with it, the answer is the same; but one that expired may know it."""
    body, _, signature = text.rpartition(".")
    expected = _base64(_digest(secret, body))
    if len(text) > limits.FILE_URL_BYTES_MAX or not hmac.compare_digest(
        signature.encode("utf-8", "surrogatepass"), expected.encode("ascii")
    ):
        raise _refused()
    try:
        grant = codec.decode(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)), FileGrant)
    except (ValueError, binascii.Error):
        raise _refused() from None
    if grant.method != method:
        raise _refused()
    if now_s >= grant.expires_at_s:
        raise Unauthenticated("this address has expired", code="url_expired", hint="Ask for a new one.")
    return grant


def _refused() -> Unauthenticated:
    return Unauthenticated(
        "this address was not signed by this server, or not for this method",
        code="invalid_signature",
        hint="Use it unchanged: a download address with GET, an upload address with PUT.",
    )


def _digest(secret: bytes, body: str) -> bytes:
    return hmac.digest(secret, body.encode("utf-8", "surrogatepass"), hashlib.sha256)


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode("ascii").rstrip("=")
