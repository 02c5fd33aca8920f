"""Down into a folder and up again, however deep it is: one folder is open at a time, and each name is looked up in it.

A path as long as the way down would be refused by the kernel, and a function that calls itself by Python. Where a link
appears in the place of a folder it is not followed.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from types import TracebackType

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

Identity = tuple[int, int]


def _identity(fd: int) -> Identity:
    found = os.fstat(fd)
    return found.st_dev, found.st_ino


class Descent:
    """One way down and up. `fd` is the folder where it is now."""

    def __init__(self, top: str, *, follow: bool = False) -> None:
        """With `follow` the top itself may be a link."""
        self._top = top.rstrip("/") or "/"
        self.fd = os.open(self._top, _FOLDER | (0 if follow else os.O_NOFOLLOW))
        self._above: list[tuple[str, Identity | int]] = []

    def __enter__(self) -> Descent:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        os.close(self.fd)
        for _name, above in self._above:
            if isinstance(above, int):
                os.close(above)

    def path(self, name: str = "") -> str:
        """What is told to a person."""
        return os.path.join(self._top, *(above for above, _ in self._above), name).rstrip("/") or "/"

    def near(self, name: str = "") -> str:
        """What is opened: short, and found wherever the folder has been moved meanwhile."""
        return f"/proc/self/fd/{self.fd}/{name}"

    def entries(self) -> list[tuple[str, bool]]:
        """All names here, and whether each is a folder."""
        with os.scandir(self.fd) as found:
            return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found]

    def down(self, name: str, *, links: bool = False) -> None:
        """With `links` also through a link that is there already: the way up from there is kept open."""
        try:
            child = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=self.fd)
        except OSError as error:
            if not links or error.errno not in (errno.ELOOP, errno.ENOTDIR):
                raise
            child = os.open(name, _FOLDER, dir_fd=self.fd)
            self._above.append((name, self.fd))
        else:
            self._above.append((name, _identity(self.fd)))
            os.close(self.fd)
        self.fd = child

    def up(self) -> str:
        """The name of the folder that was left."""
        name, above = self._above[-1]
        if isinstance(above, int):
            parent = above
        else:
            parent = os.open("..", _FOLDER, dir_fd=self.fd)
            if _identity(parent) != above:
                os.close(parent)
                raise OSError(errno.EBUSY, "it was moved away meanwhile", self.path())
        self._above.pop()
        os.close(self.fd)
        self.fd = parent
        return name

    @property
    def is_at_top(self) -> bool:
        return not self._above


def each_below(top: str, *, follow: bool = False) -> Iterator[tuple[int, str]]:
    """All that is below a folder, as an open folder and a name in it: folders before what they hold.

    What cannot be read is passed over, as is the top itself if it is no folder.
    """
    try:
        at = Descent(top, follow=follow)
    except OSError:
        return
    with at:
        waiting: list[list[str]] = []
        while True:
            try:
                entries = at.entries()
            except OSError:
                entries = []
            for name, _ in entries:
                yield at.fd, name
            waiting.append([name for name, is_folder in entries if is_folder])
            if not _on(at, waiting):
                return


def _on(at: Descent, waiting: list[list[str]]) -> bool:
    """Into the next folder that is left, here or above; False if none is."""
    while True:
        while waiting[-1]:
            try:
                at.down(waiting[-1].pop())
            except OSError:
                continue
            return True
        waiting.pop()
        if not waiting:
            return False
        at.up()


def remove_tree(top: str, *, leave: bool = False) -> None:
    """A folder and all that is in it. What cannot be removed is told, and nothing more is; or with `leave`, stays."""
    try:
        with Descent(top) as at:
            _Removal(at, leave=leave).run()
        os.rmdir(top)
    except OSError:
        if not leave:
            raise


class _Removal:
    def __init__(self, at: Descent, *, leave: bool) -> None:
        self._at = at
        self._leave = leave

    def run(self) -> None:
        waiting = [self._clear()]
        while True:
            if waiting[-1]:
                if self._enter(waiting[-1].pop()):
                    waiting.append(self._clear())
                continue
            waiting.pop()
            if not waiting:
                return
            name = self._at.up()
            try:
                os.rmdir(name, dir_fd=self._at.fd)
            except OSError as error:
                self._failed(error, name)

    def _clear(self) -> list[str]:
        """Removes what is no folder; which folders are left."""
        folders = []
        for name, is_folder in self._at.entries():
            if is_folder:
                folders.append(name)
            else:
                self._unlink(name)
        return folders

    def _unlink(self, name: str) -> None:
        try:
            os.unlink(name, dir_fd=self._at.fd)
        except OSError as error:
            self._failed(error, name)

    def _enter(self, name: str) -> bool:
        try:
            self._at.down(name)
        except NotADirectoryError:  # something else took its place
            self._unlink(name)
        except OSError as error:
            self._failed(error, name)
        else:
            return True
        return False

    def _failed(self, error: OSError, name: str) -> None:
        if not self._leave and error.errno != errno.ENOENT:
            raise OSError(error.errno, error.strerror, self._at.path(name)) from None
