# Generated from src/atoll/client/_async/files.py by tools/unasync.py: change that file, not this one.
"""Files of a sandbox: all that can be done with them, and signed addresses for those who have no key."""

from __future__ import annotations

from atoll.client._sync.archives import Archives
from atoll.client._sync.filecontent import FileContent
from atoll.client._sync.filetext import FileText
from atoll.client._sync.filetree import FileTree
from atoll.wire.public import FileUrl, FileUrlCreate


class Files(FileContent, FileTree, FileText, Archives):
    """`sb.files`: the files of a sandbox. Paths are absolute, or relative to the user's home."""

    def download_url(self, path: str, *, expires_s: float | None = None, user: str | int | None = None) -> str:
        """An address from which anybody can GET this one file, without a key, until it expires.

        Example:
            print(sb.files.download_url("report.pdf", expires_s=60))
        """
        return self._url("GET", path, expires_s, user)

    def upload_url(self, path: str, *, expires_s: float | None = None, user: str | int | None = None) -> str:
        """An address to which anybody can PUT this one file, without a key, until it expires.

        Example:
            print(sb.files.upload_url("input.csv", expires_s=60))
        """
        return self._url("PUT", path, expires_s, user)

    def _url(self, method: str, path: str, expires_s: float | None, user: str | int | None) -> str:
        body = FileUrlCreate(path=path, method=method, expires_s=expires_s, user=user)
        made = self._transport.call("POST", f"{self._path}/urls", FileUrl, body)
        return self._transport.config.url + made.url
