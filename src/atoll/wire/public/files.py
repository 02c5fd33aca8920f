"""Bodies about files and folders."""

from __future__ import annotations

from datetime import datetime

from atoll.wire.public.base import Answer, Request


class FileView(Answer):
    path: str
    name: str
    type: str
    size: int
    mode: int
    owner: str
    group: str
    modified_at: datetime
    link_target: str | None = None


class FileList(Answer):
    items: list[FileView]


class FileWritten(Answer):
    path: str
    size: int


class DirectoryCreate(Request):
    """Make a directory and those above it; one that is there already is fine."""

    path: str
    user: str | None = None


class FileMove(Request):
    """Move or rename a file or a directory."""

    source: str
    target: str
    user: str | None = None
