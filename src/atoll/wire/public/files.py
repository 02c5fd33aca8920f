"""Bodies about files and folders: what they are, and changes to them."""

from __future__ import annotations

from datetime import datetime

from atoll.wire.public.base import Answer, Request


class FileView(Answer):
    """A file, a folder, a link or something rarer. `mime` is known where one file was asked for."""

    path: str
    name: str
    type: str
    size: int
    mode: int
    owner: str
    group: str
    modified_at: datetime
    link_target: str | None = None
    accessed_at: datetime | None = None
    changed_at: datetime | None = None
    links: int | None = None
    mime: str | None = None


class FileList(Answer):
    """`truncated` says that there are more than the answer may hold."""

    items: list[FileView]
    truncated: bool = False


class FileWritten(Answer):
    path: str
    size: int


class FilesWritten(Answer):
    """How many files were written in one call."""

    written: int


class FileHead(Request):
    """What stands before the bytes of each file when many are written in one call. `mode` is octal (755)."""

    path: str
    mode: str | None = None
    append: bool = False
    parents: bool = True


class DirectoryCreate(Request):
    """Make a directory and those above it; one that is there already is fine."""

    path: str
    user: str | int | None = None


class FileMove(Request):
    """Move or rename a file or a directory. With `parents` the directories on the way are made."""

    source: str
    target: str
    overwrite: bool = True
    parents: bool = False
    user: str | int | None = None


class FileCopy(Request):
    """Copy a file, or a directory with all that is in it. With `parents` the directories on the way are made."""

    source: str
    target: str
    overwrite: bool = True
    parents: bool = False
    user: str | int | None = None


class FileChmod(Request):
    """Change the rights of a file; `mode` is octal (755)."""

    path: str
    mode: str
    recursive: bool = False
    user: str | int | None = None


class FileChown(Request):
    """Change the owner of a file; owner and group are names or numbers, and what is not given stays."""

    path: str
    owner: str | None = None
    group: str | None = None
    recursive: bool = False
    user: str | int | None = None


class FileSymlink(Request):
    """Make `path` a link that says `target`, word for word."""

    path: str
    target: str
    user: str | int | None = None


class FileTouch(Request):
    """Set the times of a file, to now where none is given; one that is not there is made, empty."""

    path: str
    accessed_at: datetime | None = None
    modified_at: datetime | None = None
    user: str | int | None = None


class AttributesView(Answer):
    """Extended attributes; values are in base64."""

    attributes: dict[str, bytes]


class AttributeSet(Request):
    """Set one extended attribute; the value is in base64."""

    path: str
    name: str
    value: bytes
    user: str | int | None = None


class ArchiveUnpacked(Answer):
    """What came out of an archive: entries of any kind, and the bytes of its files."""

    entries: int
    bytes: int


class FileUrlCreate(Request):
    """Ask for an address that opens one file for one method, without a key, until it expires."""

    path: str
    method: str
    expires_s: float | None = None
    user: str | int | None = None


class FileUrl(Answer):
    """A signed address, from the server's root on."""

    url: str
    method: str
    expires_at: datetime
