"""Searching in the content of files, and replacing in them. Runs in a process of its own, with a CPU limit."""

from __future__ import annotations

import errno
import os
import re
import stat as modes
from collections.abc import Iterator

from atoll.guest.channel import Channel
from atoll.guest.failure import Refused
from atoll.guest.listing import Batches, Pattern, walk
from atoll.guest.params import Params, flag, integer, path, text, texts
from atoll.guest.reading import open_regular
from atoll.guest.users import User
from atoll.guest.writing import store
from atoll.model import limits

_SNIFF_BYTES = 8192
_NOT_WRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ETXTBSY, errno.ENOENT)


def _expression(params: Params) -> re.Pattern[bytes]:
    pattern = text(params, "pattern", chars_max=16 * limits.KIB).encode("utf-8", "surrogateescape")
    if not flag(params, "regex", True):
        pattern = re.escape(pattern)
    try:
        return re.compile(pattern, re.IGNORECASE if flag(params, "ignore_case") else 0)
    except (re.error, RecursionError, OverflowError) as error:
        raise Refused("invalid_argument", f"not a regular expression: {error}") from None


def _files(user: User, params: Params, left_out: list[str]) -> Iterator[tuple[str, bool]]:
    """The files that are meant, and whether the caller named it: one, or those below a folder whose names fit `glob`.

    Folders that are closed to this user, or too deep, are added to `left_out`.
    """
    for given in texts(params, "paths") or [path(params, user.home)]:
        root = path({"path": given}, user.home)
        found = os.stat(root)
        if not modes.S_ISDIR(found.st_mode):
            yield root, True
            continue
        pattern = Pattern(text(params, "glob", "*", chars_max=limits.PATH_BYTES_MAX))
        for name, below, _ in walk(root, limits.TREE_DEPTH_MAX, skipped=left_out, too_deep=left_out):
            if modes.S_ISREG(below.st_mode) and pattern.matches(os.path.relpath(name, root)):
                yield name, False


def _content(name: str, named: bool) -> bytes | None:
    """All of a text file; None for one that is binary or too large, or not readable if nobody named it."""
    try:
        fd, found = open_regular(name)
    except (OSError, Refused):
        if named:
            raise
        return None
    with open(fd, "rb") as file:
        if found.st_size > limits.SEARCH_FILE_BYTES_MAX:
            return None
        content = file.read(limits.SEARCH_FILE_BYTES_MAX + 1)
    if len(content) > limits.SEARCH_FILE_BYTES_MAX or b"\0" in content[:_SNIFF_BYTES]:
        return None
    return content


def search(user: User, params: Params, channel: Channel) -> None:
    """Lines that match, with their numbers; columns count bytes from 1."""
    expression = _expression(params)
    matches_max = integer(params, "matches_max", 1000, low=1, high=limits.SEARCH_MATCHES_MAX)
    batches = Batches(channel, matches_max)
    searched = skipped = 0
    left_out: list[str] = []
    for name, named in _files(user, params, left_out):
        content = _content(name, named)
        if content is None:
            skipped += 1
            continue
        searched += 1
        if not all(batches.add(match) for match in _matches(name, content, expression)):
            break
    batches.end(searched=searched, skipped=skipped + len(left_out))


def _lines(content: bytes) -> Iterator[bytes]:
    """One by one: all at once, short lines of a large file take many times its size."""
    start = 0
    while (end := content.find(b"\n", start)) >= 0:
        yield content[start:end]
        start = end + 1
    yield content[start:]


def _matches(name: str, content: bytes, expression: re.Pattern[bytes]) -> Iterator[Params]:
    for number, line in enumerate(_lines(content), 1):
        found = expression.search(line)
        if found is not None:
            shown = line[: limits.SEARCH_LINE_BYTES_MAX]
            yield {
                "path": name,
                "line": number,
                "column": found.start() + 1,
                "length": found.end() - found.start(),
                "text": shown.decode("utf-8", "surrogateescape"),
                "cut": len(shown) < len(line),
            }


def replace(user: User, params: Params, channel: Channel) -> None:
    """Every match in every file that is meant; each file changes as a whole or not at all.

    One that may not be written is passed over unless the caller named it. Whatever else fails ends the call; the error
    says how many files had changed by then.
    """
    expression = _expression(params)
    replacement = text(params, "replacement", chars_max=limits.MIB).encode("utf-8", "surrogateescape")
    if not flag(params, "regex", True):
        replacement = replacement.replace(b"\\", b"\\\\")
    batches = Batches(channel, limits.SEARCH_MATCHES_MAX)
    total = skipped = 0
    left_out: list[str] = []
    for name, named in _files(user, params, left_out):
        content = _content(name, named)
        if content is None:
            skipped += 1
            continue
        try:
            changed, count = expression.subn(replacement, content)
        except (re.error, IndexError) as error:
            raise Refused("invalid_argument", f"not a replacement: {error}") from None
        if not count:
            continue
        if not flag(params, "dry_run"):
            try:
                store(name, {"parents": False}, [changed], user)
            except OSError as error:
                if error.errno in _NOT_WRITABLE and not named:
                    skipped += 1
                    continue
                words = error.strerror or os.strerror(error.errno or 0)
                raise OSError(error.errno, f"{words} ({batches.count} files were changed)", name) from None
        total += count
        if not batches.add({"path": name, "count": count}):
            break
    batches.end(replaced=total, skipped=skipped + len(left_out))
