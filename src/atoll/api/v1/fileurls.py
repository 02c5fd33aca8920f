"""Signed addresses: make one for a file, and use it at /v1/signed/files without a key.

What is read this way comes from a sandbox and may be opened in a browser: it is sent as a file to be saved, never as
something to show.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import msgspec

from atoll.api import authn
from atoll.api.endpoint import Call, Endpoint, Nothing, Streamed
from atoll.api.v1.filecontent import RAW, download, write_body
from atoll.api.v1.files import FILE_ERRORS, PATH
from atoll.control.service import Guest
from atoll.model.errors import LimitExceeded, OutOfSpace, Unauthenticated
from atoll.wire.public import FileUrl, FileUrlCreate, FileWritten
from atoll.wire.signed import FileGrant

SIGNED = "/v1/signed/files"


class SignedQuery(msgspec.Struct, forbid_unknown_fields=True):
    """What makes the address valid."""

    token: str


async def create(call: Call[FileUrlCreate, Nothing]) -> FileUrl:
    body = call.body
    user = None if body.user is None else str(body.user)
    token, expires_at = await call.control.file_url(
        call.principal, call.path["sandbox"], body.method, body.path, user, body.expires_s
    )
    return FileUrl(url=f"{SIGNED}?token={token}", method=body.method, expires_at=expires_at)


async def read(call: Call[Nothing, SignedQuery]) -> Streamed:
    sandbox, grant = await _admit(call, "GET")
    headers = [
        (b"content-disposition", _disposition(grant.path)),
        (b"x-content-type-options", b"nosniff"),
        (b"cache-control", b"no-store"),
    ]
    return await download(call, sandbox, _params(grant), headers)


async def write(call: Call[Nothing, SignedQuery]) -> FileWritten:
    sandbox, grant = await _admit(call, "PUT")
    return await write_body(call, sandbox, _params(grant))


async def _admit(call: Call[Nothing, SignedQuery], method: str) -> tuple[Guest, FileGrant]:
    """Whoever holds an address counts as the key that it was made with."""
    signer, grant = await call.control.file_granted(call.query.token, method)
    call.is_about(grant.sandbox)
    (needs,) = signer.scopes
    principal = authn.admit(signer, call.scope, call.control, needs)
    return await call.control.guest(principal, grant.sandbox), grant


def _params(grant: FileGrant) -> dict[str, Any]:
    return {"path": grant.path} if grant.user is None else {"path": grant.path, "user": grant.user}


def _disposition(path: str) -> bytes:
    """The file's own name to save it under, in the only form that carries every name (RFC 6266)."""
    name = path.rstrip("/").rpartition("/")[2].encode("utf-8", "surrogateescape")
    return b"attachment; filename*=UTF-8''" + quote(name, safe="").encode("ascii")


ENDPOINTS = (
    Endpoint(
        "POST",
        PATH + "/urls",
        "Make a signed address of a file",
        create,
        body=FileUrlCreate,
        answer=FileUrl,
        status=201,
        errors=FILE_ERRORS,
    ),
    Endpoint(
        "GET",
        SIGNED,
        "Read a file by its signed address",
        read,
        query=SignedQuery,
        gives={RAW: None},
        public=True,
        errors=(Unauthenticated, LimitExceeded, *FILE_ERRORS),
    ),
    Endpoint(
        "PUT",
        SIGNED,
        "Write a file by its signed address",
        write,
        query=SignedQuery,
        takes=RAW,
        answer=FileWritten,
        public=True,
        errors=(Unauthenticated, LimitExceeded, *FILE_ERRORS, OutOfSpace),
    ),
)
