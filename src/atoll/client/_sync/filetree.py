# Generated from src/atoll/client/_async/filetree.py by tools/unasync.py: change that file, not this one.
"""The tree of files: list and find, move, copy and remove, rights, owners, links, times and attributes."""

from __future__ import annotations

from datetime import datetime

from atoll.client import _exchange as exchange
from atoll.client._sync.filebase import FileBase
from atoll.client._listed import Listed
from atoll.model import limits
from atoll.model.errors import NotFound
from atoll.wire.public import (
    AttributeSet,
    AttributesView,
    DirectoryCreate,
    FileChmod,
    FileChown,
    FileCopy,
    FileList,
    FileMove,
    FileSymlink,
    FileTouch,
    FileView,
)

Views = Listed[FileView]
_LONG_S = limits.GUEST_IDLE_S_MAX  # a large folder takes its time


class FileTree(FileBase):
    """What is there, and changes to it."""

    def list(self, path: str = ".", *, depth: int = 1, user: str | int | None = None) -> Views:
        """What is in a folder, and in its folders down to `depth`; `truncated` of the answer says that it was cut.

        Example:
            for f in sb.files.list("/home/user"):
                print(f.type, f.size, f.name)
        """
        where = exchange.query(path=path, depth=depth, user=user)
        return _listed(self._transport.call("GET", f"{self._path}{where}", FileList))

    def find(
        self,
        path: str,
        pattern: str = "*",
        *,
        type: str | None = None,
        depth: int | None = None,
        limit: int | None = None,
        user: str | int | None = None,
    ) -> Views:
        """What is below a folder and has a name, or with a slash in the pattern a path, like the pattern.

        At most 10,000 of them, or `limit`; `truncated` of the answer says that there are more.

        Example:
            sources = sb.files.find("project", "*.py", type="file")
        """
        where = exchange.query(path=path, pattern=pattern, type=type, depth=depth, limit=limit, user=user)
        return _listed(self._transport.call("GET", f"{self._path}/find{where}", FileList))

    def stat(self, path: str, *, follow: bool = False, user: str | int | None = None) -> FileView:
        """What is known about one file or folder; with `follow` about what a link leads to.

        Example:
            size = (sb.files.stat("a.txt")).size
        """
        where = exchange.query(path=path, follow=follow or None, user=user)
        return self._transport.call("GET", f"{self._path}/stat{where}", FileView)

    def exists(self, path: str, *, user: str | int | None = None) -> bool:
        """Whether there is such a file or folder.

        Example:
            if not sb.files.exists("a.txt"):
                sb.files.write("a.txt", "")
        """
        try:
            self.stat(path, user=user)
        except NotFound as error:
            if error.code == "sandbox_not_found":
                raise
            return False
        return True

    def remove(
        self, path: str, *, recursive: bool = False, missing_ok: bool = False, user: str | int | None = None
    ) -> None:
        """Remove a file or an empty folder; with `recursive` a folder and all that is in it.

        Example:
            sb.files.remove("build", recursive=True)
        """
        where = exchange.query(path=path, recursive=recursive or None, missing_ok=missing_ok or None, user=user)
        self._transport.fetch("DELETE", f"{self._path}{where}", read_s=_LONG_S)

    def mkdir(self, path: str, *, user: str | int | None = None) -> None:
        """Make a folder and those above it; one that is there already is fine.

        Example:
            sb.files.mkdir("/home/user/project/src")
        """
        body = DirectoryCreate(path=path, user=user)
        self._transport.fetch("POST", self._directories_path, exchange.encode(body))

    def move(
        self,
        source: str,
        target: str,
        *,
        overwrite: bool = True,
        parents: bool = False,
        user: str | int | None = None,
    ) -> None:
        """Move or rename a file or folder. With `parents` the folders on the way are made.

        Example:
            sb.files.move("draft.txt", "final.txt")
        """
        body = FileMove(source=source, target=target, overwrite=overwrite, parents=parents, user=user)
        self._transport.fetch("POST", f"{self._path}/move", exchange.encode(body), read_s=_LONG_S)

    def copy(
        self,
        source: str,
        target: str,
        *,
        overwrite: bool = True,
        parents: bool = False,
        user: str | int | None = None,
    ) -> FileView:
        """Copy a file, or a folder with all that is in it, inside the sandbox.

        Example:
            sb.files.copy("project", "backup/project", parents=True)
        """
        body = FileCopy(source=source, target=target, overwrite=overwrite, parents=parents, user=user)
        return self._transport.call("POST", f"{self._path}/copy", FileView, body, read_s=_LONG_S)

    def chmod(self, path: str, mode: int, *, recursive: bool = False, user: str | int | None = None) -> FileView:
        """Change the rights of a file or folder.

        Example:
            sb.files.chmod("run.sh", 0o755)
        """
        body = FileChmod(path=path, mode=f"{mode:o}", recursive=recursive, user=user)
        return self._transport.call("POST", f"{self._path}/chmod", FileView, body, read_s=_LONG_S)

    def chown(
        self,
        path: str,
        owner: str | int | None = None,
        group: str | int | None = None,
        *,
        recursive: bool = False,
        user: str | int | None = None,
    ) -> FileView:
        """Change the owner or the group, by name or number; this needs the rights of `root`.

        Example:
            sb.files.chown("/srv/data", "user", "user", recursive=True, user="root")
        """
        body = FileChown(
            path=path,
            owner=None if owner is None else str(owner),
            group=None if group is None else str(group),
            recursive=recursive,
            user=user,
        )
        return self._transport.call("POST", f"{self._path}/chown", FileView, body, read_s=_LONG_S)

    def symlink(self, path: str, target: str, *, user: str | int | None = None) -> FileView:
        """Make `path` a link that says `target`, word for word.

        Example:
            sb.files.symlink("latest", "build-7")
        """
        body = FileSymlink(path=path, target=target, user=user)
        return self._transport.call("POST", f"{self._path}/symlink", FileView, body)

    def touch(
        self,
        path: str,
        *,
        accessed_at: datetime | None = None,
        modified_at: datetime | None = None,
        user: str | int | None = None,
    ) -> FileView:
        """Set the times of a file, to now if none is given; a file that is not there is made, empty.

        Example:
            sb.files.touch("done")
        """
        body = FileTouch(path=path, accessed_at=accessed_at, modified_at=modified_at, user=user)
        return self._transport.call("POST", f"{self._path}/touch", FileView, body)

    def attributes(self, path: str, *, user: str | int | None = None) -> dict[str, bytes]:
        """The extended attributes of a file.

        Example:
            print(sb.files.attributes("a.txt"))
        """
        where = exchange.query(path=path, user=user)
        return (self._transport.call("GET", f"{self._path}/attributes{where}", AttributesView)).attributes

    def set_attribute(self, path: str, name: str, value: bytes | None, *, user: str | int | None = None) -> None:
        """Set an extended attribute, such as `user.origin`; None removes it.

        Example:
            sb.files.set_attribute("a.txt", "user.origin", b"build 7")
        """
        if value is None:
            where = exchange.query(path=path, name=name, user=user)
            self._transport.fetch("DELETE", f"{self._path}/attributes{where}")
            return
        body = AttributeSet(path=path, name=name, value=value, user=user)
        self._transport.fetch("PUT", f"{self._path}/attributes", exchange.encode(body))


def _listed(answer: FileList) -> Views:
    return Listed(answer.items, truncated=answer.truncated)
