"""E2B's `/files`: the bytes of files down and up, for the holder of a token or of a signed address."""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import anyio.lowlevel
import msgspec

from atoll.api.compat.e2b import metadata
from atoll.api.compat.e2b.ask import Ask, Operation, as_root
from atoll.api.compat.e2b.multipart import PartBegun, PartData, PartEnded, Parts, boundary_of
from atoll.api.compat.e2b.signatures import Signed
from atoll.api.compat.e2b.unpacking import Gzip
from atoll.api.stream import body_chunks, until_disconnected
from atoll.api.v1 import filecontent, guestwords
from atoll.control.sandboxtokens import TokenKind
from atoll.control.service import Guest
from atoll.model import limits
from atoll.model.errors import AtollError, Conflict, GuestFailed, InvalidArgument, NotFound, TooLarge, Unauthenticated
from atoll.model.event import Shown
from atoll.wire import guest
from atoll.wire.node import GuestStream

_RANGE: Final = re.compile(r"bytes=(\d{1,18})-(\d{0,18})")
_QUALITY: Final = re.compile(r"q=(\d(?:\.\d{0,3})?)")
_READ, _WRITE = "read", "write"


async def download(ask: Ask) -> None:
    path, user = await _admit(ask, _READ)
    asked = ask.header(b"range").replace(" ", "")
    coding = coding_of(ask.header(b"accept-encoding"), in_parts=bool(asked))
    if coding is None:
        await ask.answer({"code": 406, "message": "no acceptable encoding found"}, 406)
        return
    wanted = range_of(asked)
    if wanted is not None and wanted.last is not None and wanted.last < wanted.first:
        await ask.answer({"code": 416, "message": "invalid range"}, 416)
        return
    inside = await ask.guest()

    async def work() -> None:
        async with inside.stream("file.read", as_root({"path": path, **_part_params(wanted)}, user)) as stream:
            if await _send_file(ask, stream, wanted, compressed=coding == "gzip"):
                return
        async with inside.stream("file.read", as_root({"path": path}, user)) as stream:
            await _send_file(ask, stream, None, compressed=False)

    try:
        await until_disconnected(ask.receive, work)
    except (InvalidArgument, NotFound, Unauthenticated) as error:
        raise _explained(error, path, user) from error


def coding_of(accepted: str, *, in_parts: bool) -> str | None:
    """How a file is sent; None if the caller takes neither of both ways.

    Most clients take gzip among others and gain nothing by it, so it is for who asks for nothing else. A part is a part
    of the file as it is.
    """
    weights = {name: weight for name, weight in map(_weight, accepted.lower().split(",")) if name}
    others = weights.get("*")
    plain = weights.get("identity", 1.0 if others is None else others) > 0
    packed = weights.get("gzip", others or 0.0) > 0 and not in_parts
    if packed and (not plain or set(weights) == {"gzip"}):
        return "gzip"
    return "identity" if plain else None


def _weight(part: str) -> tuple[str, float]:
    name, _, more = part.partition(";")
    match = _QUALITY.fullmatch(more.replace(" ", ""))
    return name.strip(), float(match[1]) if match else 1.0


class Range(NamedTuple):
    """Bytes of a file, the last one too; without one to the end."""

    first: int
    last: int | None


def range_of(text: str) -> Range | None:
    """The one range that is asked for; several, or one from the end, are answered with the whole file."""
    match = _RANGE.fullmatch(text)
    return Range(int(match[1]), int(match[2]) if match[2] else None) if match else None


def _part_params(wanted: Range | None) -> dict[str, Any]:
    if wanted is None:
        return {}
    return {"offset": wanted.first, "length": None if wanted.last is None else wanted.last - wanted.first + 1}


async def _send_file(ask: Ask, stream: GuestStream, wanted: Range | None, *, compressed: bool) -> bool:
    """Whether that was the answer. It is none if a part was wanted of what does not say how large it is, as in /proc:
    then it is all of it.

    As many bytes as were announced: no more if the file has grown, and an incomplete answer if it shrank.
    """
    messages = aiter(stream)
    opened = await anext(messages, None)
    if not isinstance(opened, guest.Event):
        raise GuestFailed("the sandbox did not say what it opened")
    size = guestwords.file(opened.value).size
    if wanted is not None and not size:
        return False
    first, last = wanted or Range(0, None)
    if wanted is not None and first >= size:
        words = {"code": 416, "message": "the range starts behind the end of the file"}
        await ask.answer(words, 416, {"content-range": f"bytes */{size}"})
        return True
    last = size - 1 if last is None else min(last, size - 1)
    payloads = filecontent.payloads(messages)
    data = await anext(payloads, b"")
    left = last - first + 1 if size or not data else None
    packer = zlib.compressobj(wbits=31) if compressed else None
    part = f"bytes {first}-{last}/{size}" if wanted is not None else ""
    await _begin(ask, None if compressed else left, part, packed=compressed)
    while data:
        if left is not None:
            data = data[:left]
            left -= len(data)
        body = data if packer is None else packer.compress(data)
        if body:
            await ask.send({"type": "http.response.body", "body": body, "more_body": True})
        data = await anext(payloads, b"") if left != 0 else b""
    if left:
        raise Conflict("the file has become shorter while it was read", code="file_changed")
    await ask.send({"type": "http.response.body", "body": b"" if packer is None else packer.flush()})
    return True


async def _begin(ask: Ask, length: int | None, part: str, *, packed: bool) -> None:
    headers = [
        (b"content-type", b"application/octet-stream"),
        (b"accept-ranges", b"bytes"),
        (b"vary", b"Accept-Encoding"),
    ]
    if length is not None:
        headers.append((b"content-length", str(length).encode("ascii")))
    if part:
        headers.append((b"content-range", part.encode("ascii")))
    if packed:
        headers.append((b"content-encoding", b"gzip"))
    await ask.send({"type": "http.response.start", "status": 206 if part else 200, "headers": headers})


async def upload(ask: Ask) -> None:
    """One file as the whole body, or several as the parts of a form."""
    path, user = await _admit(ask, _WRITE)
    labels = metadata.from_headers(ask.scope["headers"])
    inside = await ask.guest()
    content_type = ask.header(b"content-type")
    chunks = _unpacked(ask)
    try:
        if content_type.lower().startswith("multipart/form-data"):
            parts = Parts(boundary_of(content_type))
            written = await _write_parts(_Writer(inside, user, labels), parts, chunks, path)
        else:
            if not path:
                raise InvalidArgument("the address names no path")
            written = [await _Writer(inside, user, labels).write(path, chunks)]
    except (InvalidArgument, NotFound, Unauthenticated) as error:
        raise _explained(error, path, user) from error
    await ask.answer(written)


async def _unpacked(ask: Ask) -> AsyncIterator[bytes]:
    """The body, out of its compression if it has one."""
    encoding = ask.header(b"content-encoding").lower()
    if encoding in ("", "identity"):
        async for chunk in body_chunks(ask.receive):
            yield chunk
        return
    if encoding != "gzip":
        raise InvalidArgument(f"Content-Encoding {encoding[:40]} is not understood")
    unpacker = Gzip()
    async for chunk in body_chunks(ask.receive):
        for data in unpacker.feed(chunk):
            await anyio.lowlevel.checkpoint()  # a small chunk may hold much, or nothing in many members
            if data:
                yield data
    unpacker.close()


async def _write_parts(writer: _Writer, parts: Parts, chunks: AsyncIterator[bytes], path: str) -> list[dict[str, Any]]:
    """Each part into its own file, one after the other, as they come."""
    written: list[dict[str, Any]] = []
    names: set[str] = set()
    happenings = _happenings(parts, chunks)
    async for happening in happenings:
        if not isinstance(happening, PartBegun):
            continue
        if happening.name != "file" and happening.filename is None:
            await _skip(happenings)
            continue
        name = path or happening.filename or ""
        if not name:
            raise InvalidArgument("a part has no file name")
        if name in names:
            raise InvalidArgument(f"you cannot upload multiple files to the same path '{name}'")
        if len(names) >= limits.E2B_UPLOAD_FILES_MAX:
            raise TooLarge(f"at most {limits.E2B_UPLOAD_FILES_MAX} files in one upload")
        names.add(name)
        written.append(await writer.write(name, _part(happenings)))
    if not written:
        raise InvalidArgument("no file was sent")
    return written


async def _happenings(parts: Parts, chunks: AsyncIterator[bytes]) -> AsyncIterator[PartBegun | PartData | PartEnded]:
    async for chunk in chunks:
        for happening in parts.feed(chunk):
            yield happening
    parts.close()


async def _part(happenings: AsyncIterator[PartBegun | PartData | PartEnded]) -> AsyncIterator[bytes]:
    async for happening in happenings:
        if isinstance(happening, PartEnded):
            return
        if isinstance(happening, PartData):
            yield happening.data


async def _skip(happenings: AsyncIterator[PartBegun | PartData | PartEnded]) -> None:
    async for _ in _part(happenings):
        pass


class _Writer:
    """Writes files as one user with one set of labels.

    A file is written in place, not beside its name and then over it: whoever watches the folder sees the same changes
    as with E2B (a file is made, given to the user, and written), and a file that was there keeps its rights and its
    links.
    """

    def __init__(self, inside: Guest, user: str | None, labels: dict[str, str]) -> None:
        self._inside = inside
        self._user = user
        self._labels = labels

    async def write(self, path: str, chunks: AsyncIterator[bytes]) -> dict[str, Any]:
        how = {"atomic": False, "claim": True, "xattr_prefix": metadata.PREFIX}
        async with self._inside.stream("file.write", as_root({"path": path, **how}, self._user)) as stream:
            async for chunk in chunks:
                await stream.send(chunk)
            await stream.commit()
            value = await _ok(stream)
        view = guestwords.file(value)
        await self._label(view.path, metadata.labels(value))
        return {
            "path": view.path,
            "name": view.name,
            "type": "file",
            **({"metadata": self._labels} if self._labels else {}),
        }

    async def _label(self, path: str, before: dict[str, str]) -> None:
        """Exactly these labels: those of an earlier upload go."""
        target = as_root({"path": path}, self._user)
        for name in before.keys() - self._labels.keys():
            await self._inside.call("file.set_xattr", {**target, "name": metadata.PREFIX + name})
        for name, text in self._labels.items():
            value = base64.b64encode(text.encode("utf-8")).decode("ascii")
            await self._inside.call("file.set_xattr", {**target, "name": metadata.PREFIX + name, "value": value})


class Compose(msgspec.Struct):
    source_paths: list[str]
    destination: str
    username: str | None = None


async def compose(ask: Ask) -> None:
    """Several files become one, in order, and are gone."""
    asked = await ask.body(Compose)
    user = asked.username or ask.user()
    params = {"paths": asked.source_paths, "target": asked.destination}
    try:
        async with (await ask.guest()).stream("file.join", as_root(params, user)) as stream:
            view = guestwords.file(await _ok(stream))
    except InvalidArgument as error:
        raise _explained(error, asked.destination, user) if error.code == "unknown_user" else error from error
    await ask.answer({"path": view.path, "name": view.name, "type": "file"})


async def _ok(stream: GuestStream) -> dict[str, Any]:
    async for message in stream:
        if isinstance(message, guest.Ok | guest.End):
            return message.value
    raise guestwords.ended_early()


async def _admit(ask: Ask, operation: str) -> tuple[str, str | None]:
    """The file that is meant, and as whom; the caller has the sandbox's token or a signature made with it."""
    query = ask.query
    path, user = query.get("path", ""), query.get("username", "")
    tokens = ask.control.ingress.tokens
    given = query.get("signature", "")
    signed = Signed(given, query.get("signature_expiration", ""), path, operation, user)
    if not ask.sandbox_id:
        if not given:
            raise Unauthenticated("missing signature query parameter")
        ask.sandbox_id = _signed_for(ask, signed)
    owner = await tokens.principal(ask.sandbox_id)
    shown = ask.header(b"x-access-token")
    if shown and tokens.opens(TokenKind.INSIDE, ask.sandbox_id, shown):
        await ask.admit(owner, operation)
        return path, user or ask.user()
    if shown:
        raise Unauthenticated("the access token is wrong")
    token = tokens.mint(TokenKind.INSIDE, ask.sandbox_id)
    signed.check(token, datetime.now(UTC).timestamp())
    await ask.admit(replace(owner, by=Shown.ADDRESS), operation)
    return path, user or None


def _signed_for(ask: Ask, signed: Signed) -> str:
    """The sandbox whose token made this signature: with one address for all, a signed one names none."""
    tokens = ask.control.ingress.tokens
    for sandbox_id in tokens.ids_live():
        if signed.matches(tokens.mint(TokenKind.INSIDE, sandbox_id)):
            return sandbox_id
    raise Unauthenticated("invalid signature")


def _explained(error: AtollError, path: str, user: str | None) -> AtollError:
    """The refusals that E2B's agent has words of its own for."""
    if error.code == "unknown_user":
        return Unauthenticated(f"invalid username: '{user}'", code="unknown_user")
    if error.code == "not_found":
        return NotFound(f"path '{path}' does not exist")
    if error.code == "is_directory":
        return InvalidArgument(f"path '{path}' is a directory")
    return error


OPERATIONS: Final = (
    Operation("GET", "/files", download),
    Operation("POST", "/files", upload),
    Operation("POST", "/files/compose", compose),
)
