# Generated from src/atoll/client/_async/filetext.py by tools/unasync.py: change that file, not this one.
"""What files hold: search in their text, and replace in it; and a watch for changes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from atoll.client import _exchange as exchange
from atoll.client._sync.filebase import FileBase
from atoll.client._twins import next_piece
from atoll.client._watch import Change, WatchReader
from atoll.model import limits
from atoll.wire.public import FileMatchList, FileReplace, FileReplacementList, FileSearch


class FileText(FileBase):
    """Searching, replacing, watching."""

    def search(
        self,
        path: str,
        pattern: str,
        *,
        glob: str = "*",
        regex: bool = True,
        ignore_case: bool = False,
        limit: int = 1000,
        user: str | int | None = None,
    ) -> FileMatchList:
        """Lines that match a regular expression, or with `regex=False` hold a text, in a file or below a folder.

        Example:
            for m in (sb.files.search("project", r"def \\w+", glob="*.py")).items:
                print(m.path, m.line, m.text)
        """
        body = FileSearch(
            path=path, pattern=pattern, glob=glob, regex=regex, ignore_case=ignore_case, limit=limit, user=user
        )
        where = f"{self._path}/search"
        return self._transport.call("POST", where, FileMatchList, body, read_s=limits.GUEST_IDLE_S_MAX)

    def replace(
        self,
        path: str,
        pattern: str,
        replacement: str,
        *,
        glob: str = "*",
        regex: bool = True,
        ignore_case: bool = False,
        dry_run: bool = False,
        user: str | int | None = None,
    ) -> FileReplacementList:
        """Replace every match in a file, or in the files below a folder; each file changes as a whole.

        Example:
            sb.files.replace("project", r"colou?r", "colour", glob="*.md")
        """
        body = FileReplace(
            path=path,
            pattern=pattern,
            replacement=replacement,
            glob=glob,
            regex=regex,
            ignore_case=ignore_case,
            dry_run=dry_run,
            user=user,
        )
        where = f"{self._path}/replace"
        return self._transport.call("POST", where, FileReplacementList, body, read_s=limits.GUEST_IDLE_S_MAX)

    @contextmanager
    def watch(
        self, path: str, *, recursive: bool = False, user: str | int | None = None
    ) -> Iterator[Iterator[Change]]:
        """Changes of a folder, from the moment the block begins: `FileChanged`, and `FileOverflow` if some were lost.

        They end when the folder is removed; when the sandbox ends, its error is raised.

        Example:
            with sb.files.watch("project", recursive=True) as changes:
                for change in changes:
                    print(change)
        """
        where = exchange.query(path=path, recursive=recursive or None, user=user)
        with self._transport.stream("GET", f"{self._path}/watch{where}", accept=exchange.FRAMES) as response:
            reader = WatchReader()
            data = response.iter_raw()
            while not reader.watching:
                reader.feed(next_piece(data))
            yield self._changes(reader, data)

    def _changes(self, reader: WatchReader, data: Iterator[bytes]) -> Iterator[Change]:
        while True:
            for change in reader.taken():
                yield change
            if reader.ended:
                return
            reader.feed(next_piece(data))
