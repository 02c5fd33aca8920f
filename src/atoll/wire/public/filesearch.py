"""Bodies about what files hold: search in their text, and replace in it."""

from __future__ import annotations

from atoll.wire.public.base import Answer, Request


class FileSearch(Request):
    """Find lines by a regular expression, or by a plain text with `regex` false, in a file or below a directory.

    `glob` narrows the files of a directory by name. Files that are binary or very large are skipped and counted.
    """

    path: str
    pattern: str
    glob: str = "*"
    regex: bool = True
    ignore_case: bool = False
    limit: int = 1000
    user: str | int | None = None


class FileMatch(Answer):
    """A line that matches. Lines and columns count from 1, columns in bytes; `cut` says that the line is longer."""

    path: str
    line: int
    column: int
    length: int
    text: str
    cut: bool


class FileMatchList(Answer):
    items: list[FileMatch]
    searched: int
    skipped: int
    truncated: bool


class FileReplace(Request):
    """Replace every match in a file, or in the files below a directory; each changes as a whole or not at all.

    In a regular expression's replacement `\\1` is its first group. With `dry_run` nothing changes.
    """

    path: str
    pattern: str
    replacement: str
    glob: str = "*"
    regex: bool = True
    ignore_case: bool = False
    dry_run: bool = False
    user: str | int | None = None


class FileReplacement(Answer):
    """One file that changed, and in how many places."""

    path: str
    count: int


class FileReplacementList(Answer):
    items: list[FileReplacement]
    replaced: int
    skipped: int
    truncated: bool
