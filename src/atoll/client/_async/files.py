"""Files of a sandbox: all that can be done with them, and signed addresses for those who have no key."""

from __future__ import annotations

from atoll.client._async.archives import AsyncArchives
from atoll.client._async.filecontent import AsyncFileContent
from atoll.client._async.filetext import AsyncFileText
from atoll.client._async.filetree import AsyncFileTree
from atoll.wire.public import FileUrl, FileUrlCreate


class AsyncFiles(AsyncFileContent, AsyncFileTree, AsyncFileText, AsyncArchives):
    """`sb.files`: the files of a sandbox. Paths are absolute, or relative to the user's home."""

    async def download_url(self, path: str, *, expires_s: float | None = None, user: str | int | None = None) -> str:
        """An address from which anybody can GET this one file, without a key, until it expires.

        Example:
            print(await sb.files.download_url("report.pdf", expires_s=60))
        """
        return await self._url("GET", path, expires_s, user)

    async def upload_url(self, path: str, *, expires_s: float | None = None, user: str | int | None = None) -> str:
        """An address to which anybody can PUT this one file, without a key, until it expires.

        Example:
            print(await sb.files.upload_url("input.csv", expires_s=60))
        """
        return await self._url("PUT", path, expires_s, user)

    async def _url(self, method: str, path: str, expires_s: float | None, user: str | int | None) -> str:
        body = FileUrlCreate(path=path, method=method, expires_s=expires_s, user=user)
        made = await self._transport.call("POST", f"{self._path}/urls", FileUrl, body)
        return self._transport.config.url + made.url
