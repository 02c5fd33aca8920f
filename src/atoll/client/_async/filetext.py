"""What files hold: search in their text, and replace in it; and a watch for changes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from atoll.client import _exchange as exchange
from atoll.client._async.filebase import AsyncFileBase
from atoll.client._twins import async_next_piece
from atoll.client._watch import Change, WatchReader
from atoll.model import limits
from atoll.wire.public import FileMatchList, FileReplace, FileReplacementList, FileSearch


class AsyncFileText(AsyncFileBase):
    """Searching, replacing, watching."""

    async def search(
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
            for m in (await sb.files.search("project", r"def \\w+", glob="*.py")).items:
                print(m.path, m.line, m.text)
        """
        body = FileSearch(
            path=path, pattern=pattern, glob=glob, regex=regex, ignore_case=ignore_case, limit=limit, user=user
        )
        where = f"{self._path}/search"
        return await self._transport.call("POST", where, FileMatchList, body, read_s=limits.GUEST_IDLE_S_MAX)

    async def replace(
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
            await sb.files.replace("project", r"colou?r", "colour", glob="*.md")
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
        return await self._transport.call("POST", where, FileReplacementList, body, read_s=limits.GUEST_IDLE_S_MAX)

    @asynccontextmanager
    async def watch(
        self, path: str, *, recursive: bool = False, user: str | int | None = None
    ) -> AsyncIterator[AsyncIterator[Change]]:
        """Changes of a folder, from the moment the block begins: `FileChanged`, and `FileOverflow` if some were lost.

        They end when the folder is removed; when the sandbox ends, its error is raised.

        Example:
            async with sb.files.watch("project", recursive=True) as changes:
                async for change in changes:
                    print(change)
        """
        where = exchange.query(path=path, recursive=recursive or None, user=user)
        async with self._transport.stream("GET", f"{self._path}/watch{where}", accept=exchange.FRAMES) as response:
            reader = WatchReader()
            data = response.aiter_raw()
            while not reader.watching:
                reader.feed(await async_next_piece(data))
            yield self._changes(reader, data)

    async def _changes(self, reader: WatchReader, data: AsyncIterator[bytes]) -> AsyncIterator[Change]:
        while True:
            for change in reader.taken():
                yield change
            if reader.ended:
                return
            reader.feed(await async_next_piece(data))
