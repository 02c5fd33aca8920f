"""What E2B's volumes hold: files and folders, reached with a volume's own token."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import unquote

import msgspec

from atoll.api.compat.e2b import shapes
from atoll.api.compat.e2b.ask import Ask, Operation, without_none
from atoll.api.stream import body_chunks, until_disconnected
from atoll.api.v1.guestwords import moment
from atoll.control.volumefiles import VolumeFiles
from atoll.model import limits
from atoll.model.errors import Conflict, InvalidArgument, TooLarge
from atoll.wire.volumes import Ownership, VolumeFile

_TYPES: Final = frozenset({"file", "directory", "symlink"})


class MetadataChange(msgspec.Struct):
    uid: int | None = None
    gid: int | None = None
    mode: int | None = None


def shape(file: VolumeFile) -> dict[str, Any]:
    times = {"atime": file.atime_ns, "mtime": file.mtime_ns, "ctime": file.ctime_ns}
    return without_none(
        {
            "name": file.name,
            "type": file.type if file.type in _TYPES else "unknown",
            "path": file.path,
            "size": file.size,
            "mode": file.mode,
            "uid": file.uid,
            "gid": file.gid,
            **{name: shapes.moment(moment(value / 1e9)) for name, value in times.items()},
            "target": file.target,
        }
    )


async def _files(ask: Ask) -> VolumeFiles:
    return await ask.control.volumes.files(ask.principal, unquote(ask.path["volume"]))


def _path(ask: Ask) -> str:
    try:
        return ask.query["path"]
    except KeyError:
        raise InvalidArgument("path is missing", code="invalid_query") from None


def _ownership(ask: Ask) -> Ownership:
    return Ownership(*(_number(ask.query.get(name)) for name in ("uid", "gid", "mode")))


def _number(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 10:
        raise InvalidArgument("uid, gid and mode are numbers", code="invalid_query")
    return int(text)


async def list_directory(ask: Ask) -> None:
    """Whole or not at all: E2B's answer has no word for a list that was cut."""
    listed = await (await _files(ask)).list(_path(ask), _number(ask.query.get("depth")) or 1)
    if listed.truncated:
        raise TooLarge(
            f"there are more than {limits.VOLUME_LIST_ENTRIES_MAX} files in this folder, as deep as was asked",
            code="volume_list_too_large",
            hint="List its folders one by one, or mount the volume in a sandbox.",
        )
    await ask.answer([shape(file) for file in listed.items])


async def make_directory(ask: Ask) -> None:
    """With `force` the folders above are made too, and one that is there is fine."""
    force = ask.query.get("force") == "true"
    made = await (await _files(ask)).make_directory(_path(ask), _ownership(ask), parents=force, exist_ok=force)
    await ask.answer(shape(made), 201)


async def stat(ask: Ask) -> None:
    await ask.answer(shape(await (await _files(ask)).stat(_path(ask))))


async def change(ask: Ask) -> None:
    asked = await ask.body(MetadataChange)
    changed = await (await _files(ask)).change(_path(ask), Ownership(asked.uid, asked.gid, asked.mode))
    await ask.answer(shape(changed))


async def remove(ask: Ask) -> None:
    files, path = await _files(ask), _path(ask)
    await until_disconnected(ask.receive, lambda: files.remove(path, recursive=True))
    await ask.answer(None, 204)


async def download(ask: Ask) -> None:
    files, path = await _files(ask), _path(ask)

    async def work() -> None:
        async with files.read(path) as reading:
            left = reading.file.size
            headers = [(b"content-type", b"application/octet-stream"), (b"content-length", str(left).encode("ascii"))]
            await ask.send({"type": "http.response.start", "status": 200, "headers": headers})
            async for data in reading:
                left -= len(data)
                await ask.send({"type": "http.response.body", "body": data, "more_body": True})
            if left:
                raise Conflict("the file has become shorter while it was read", code="file_changed")
            await ask.send({"type": "http.response.body", "body": b""})

    await until_disconnected(ask.receive, work)


async def upload(ask: Ask) -> None:
    """A file that is there is replaced, with `force` or without, as E2B says of it."""
    written = await (await _files(ask)).write(_path(ask), body_chunks(ask.receive), _ownership(ask))
    await ask.answer(shape(written), 201)


_ONE: Final = "/volumecontent/{volume}"

OPERATIONS: Final = (
    Operation("GET", f"{_ONE}/dir", list_directory),
    Operation("POST", f"{_ONE}/dir", make_directory),
    Operation("GET", f"{_ONE}/path", stat),
    Operation("PATCH", f"{_ONE}/path", change),
    Operation("DELETE", f"{_ONE}/path", remove),
    Operation("GET", f"{_ONE}/file", download),
    Operation("PUT", f"{_ONE}/file", upload),
)
