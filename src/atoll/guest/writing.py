"""Writing files: all or nothing, so that a reader never sees half of one and a full disk leaves the old one intact."""

from __future__ import annotations

import errno
import os
import stat as modes
from collections.abc import Iterable, Iterator
from contextlib import suppress

from atoll.guest import giving, incoming
from atoll.guest.beside import BesideWriter, write_fully
from atoll.guest.channel import Channel, Upload, parse
from atoll.guest.failure import Refused
from atoll.guest.listing import attributes, describe
from atoll.guest.params import Params, flag, optional_integer, path, text
from atoll.guest.users import User
from atoll.model import limits
from atoll.wire import framing

_MODE_NEW = 0o644
_SPOOL_FOLDERS = ("/tmp", "/dev/shm")


def write(user: User, params: Params, channel: Channel) -> None:
    name = store(path(params, user.home), params, channel.read_upload(), user)
    value = describe(name, os.stat(name))
    prefix = text(params, "xattr_prefix", "", chars_max=255)
    channel.send_ok({**value, "xattrs": attributes(name, prefix)} if prefix else value)


def write_many(user: User, params: Params, channel: Channel) -> None:
    """Each file is a control frame with `path` and the options of a write, then INPUT frames; a commit ends the last.

    The first that fails ends the call; those before it stay written, and the error says how many.
    """
    frames = _Frames(channel)
    written = 0
    while frames.head is not None:
        options = frames.head
        try:
            store(path(options, user.home), {**params, **options}, frames.body(), user)
        except OSError as error:
            words = os.strerror(error.errno or 0)
            raise OSError(error.errno, f"{words} ({written} files were written)", error.filename) from None
        except Refused as refused:
            raise Refused(refused.code, f"{refused.message} ({written} files were written)") from None
        written += 1
    channel.send_ok({"written": written})


class _Frames:
    """Cuts one upload into files."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.head: Params | None = channel.read_control()
        self._check()

    def _check(self) -> None:
        if self.head is not None and self.head.get("do") == "commit":
            self.head = None

    def body(self) -> Iterator[bytes]:
        while True:
            frame = self._channel.read_frame()
            if frame.kind == framing.INPUT:
                yield frame.payload
            elif frame.kind == framing.CONTROL:
                self.head = parse(frame)
                self._check()
                return
            else:
                raise Refused("invalid_argument", "an upload is control and INPUT frames")


def store(name: str, params: Params, data: Iterable[bytes | memoryview], user: User) -> str:
    """Put these bytes where `name` leads; where that is."""
    mode = optional_integer(params, "mode", high=0o7777)
    size = optional_integer(params, "size")
    if name.endswith("/"):
        raise Refused("is_directory", f"{name}: names a directory")
    name, old = _resolve(name)
    if flag(params, "exclusive") and old is not None:
        raise Refused("exists", f"{name}: exists")
    if old is None and flag(params, "parents", True):
        giving.make_folders(os.path.dirname(name), user, exist_ok=True)
    whole = flag(params, "atomic", True) and (old is None or modes.S_ISREG(old.st_mode)) and not flag(params, "append")
    if flag(params, "incoming") and isinstance(data, Upload):
        if not whole or not incoming.suits(os.path.dirname(name), old):
            data.decline()
        elif placed := incoming.receive(data, name):
            _move_in(placed, name, old, mode, size)
            giving.give(name, user)
            return name
    if flag(params, "append"):
        (_append if old is None or modes.S_ISREG(old.st_mode) else _add)(name, data, mode)
    elif whole:
        _replace(name, old, data, mode, size)
    else:
        due = giving.is_due(user)
        claimed = due or flag(params, "claim") if old is None else due and modes.S_ISREG(old.st_mode)
        _in_place(name, data, mode, owner=user if claimed else None)
        return name
    giving.give(name, user)
    return name


def _resolve(name: str) -> tuple[str, os.stat_result | None]:
    """Where to write, and what is there now. A link stays a link: what it points to is replaced."""
    try:
        found = os.lstat(name)
        if modes.S_ISLNK(found.st_mode):
            name = os.path.realpath(name)
            found = os.stat(name)
    except FileNotFoundError:
        return name, None
    if modes.S_ISDIR(found.st_mode):
        raise Refused("is_directory", f"{name}: is a directory")
    if not (modes.S_ISREG(found.st_mode) or modes.S_ISCHR(found.st_mode)):
        raise Refused("invalid_argument", f"{name}: not a regular file")
    if not os.access(name, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
    return name, found


def _write_all(fd: int, data: Iterable[bytes | memoryview]) -> int:
    """In turn with the arrival for what is small; beside it, in a second thread, for an upload that is large."""
    total = 0
    for chunk in data:
        write_fully(fd, chunk)
        total += len(chunk)
        if isinstance(data, Upload) and total >= limits.WRITE_BESIDE_BYTES:
            return total + _write_beside(fd, data)
    return total


def _write_beside(fd: int, rest: Upload) -> int:
    total = 0
    with BesideWriter(fd) as writer:
        while got := rest.read_into(writer.room()):
            writer.filled(got)
            total += got
    return total


def _append(name: str, data: Iterable[bytes | memoryview], mode: int | None) -> None:
    """All or nothing here too: what is to be added is complete, and there is room for it, before the file is touched.

    Cutting it off again would not do: on a full disk even that fails (seen: btrfs over its quota truncates nothing).
    """
    spool, place = _spool(os.path.dirname(name))
    try:
        size = _write_all(spool, data)
        _check_room(name, place, size)
        _add(name, _content(spool, size), mode)
    finally:
        os.close(spool)


def _add(name: str, data: Iterable[bytes | memoryview], mode: int | None) -> None:
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, _MODE_NEW if mode is None else mode)
    try:
        before = os.fstat(fd).st_size
        try:
            _write_all(fd, data)
        except BaseException:
            with suppress(OSError):
                os.ftruncate(fd, before)
            raise
        if mode is not None:
            os.fchmod(fd, mode)
    finally:
        os.close(fd)


def _unnamed(folder: str) -> int:
    """A file that is gone when it is closed, whatever becomes of us."""
    name = os.path.join(folder, f".atoll-{os.urandom(8).hex()}")
    fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    os.unlink(name)
    return fd


def _spool(folder: str) -> tuple[int, str]:
    """A file without a name, and the folder that it is in: this one, or another if its user may not write there."""
    for place in (folder, *_SPOOL_FOLDERS):
        try:
            return _unnamed(place), place
        except (PermissionError, FileNotFoundError):
            if not os.path.isdir(folder):
                raise
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder)


def _check_room(name: str, place: str, size: int) -> None:
    """Room for so many bytes more where a file is, or the error that says that there is none.

    `place` is a folder that can be written to. If it is on another disk, the file itself is made longer for a moment:
    what a disk says that it has left knows nothing of quotas.
    """
    if not size:
        return
    if os.stat(place).st_dev == os.stat(os.path.dirname(name)).st_dev:
        fd = _unnamed(place)
        try:
            os.posix_fallocate(fd, 0, size)
        finally:
            os.close(fd)
        return
    fd = os.open(name, os.O_WRONLY | os.O_CLOEXEC)
    try:
        end = os.fstat(fd).st_size
        os.posix_fallocate(fd, end, size)
        if os.fstat(fd).st_size == end + size:  # else somebody has added to it meanwhile
            os.ftruncate(fd, end)
    finally:
        os.close(fd)


def _content(fd: int, size: int) -> Iterator[bytes]:
    position = 0
    while position < size:
        data = os.pread(fd, min(size - position, limits.FRAME_BYTES_MAX), position)
        if not data:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        position += len(data)
        yield data


def _in_place(name: str, data: Iterable[bytes | memoryview], mode: int | None, *, owner: User | None = None) -> None:
    """With an owner it is given to that one first, also if it is theirs: who watches its folder waits to hear that."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
    flags |= os.O_TRUNC if owner is None else os.O_NOFOLLOW  # the name has been followed already
    fd = os.open(name, flags, _MODE_NEW if mode is None else mode)
    try:
        os.set_blocking(fd, True)
        if owner is not None:
            giving.give_open(fd, owner)
            if os.fstat(fd).st_size:
                os.ftruncate(fd, 0)
        _write_all(fd, data)
        if mode is not None:
            os.fchmod(fd, mode)
    finally:
        os.close(fd)


def _overwrite(name: str, data: Iterable[bytes | memoryview], mode: int | None, size: int | None) -> None:
    """Where no new file can take the place of the old one: in place, once all of it is here and there is room."""
    spool, place = _spool(os.path.dirname(name))
    try:
        total = _write_all(spool, data)
        if size is not None and total != size:
            raise Refused("invalid_argument", f"{total} bytes came, {size} were announced")
        _check_room(name, place, total)
        _in_place(name, _content(spool, total), mode)
    finally:
        os.close(spool)


def _replace(
    name: str, old: os.stat_result | None, data: Iterable[bytes | memoryview], mode: int | None, size: int | None
) -> None:
    """Into a new file beside it, then over it, with the old one's owner and rights."""
    temporary = os.path.join(os.path.dirname(name), f".atoll-{os.urandom(8).hex()}")
    rights = modes.S_IMODE(old.st_mode) if mode is None and old is not None else mode
    try:
        # A new file has the usual rights from the start; one with rights of its own is ours alone until it is complete.
        first = _MODE_NEW if rights is None else 0o600
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, first)
    except PermissionError:
        if old is None:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name) from None
        _overwrite(name, data, mode, size)  # the file may be written, its folder may not: there is no other way
        return
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name) from None
    try:
        try:
            if old is not None and not _take_owner(fd, old):
                os.unlink(temporary)
                _overwrite(name, data, mode, size)
                return
            total = _write_all(fd, data)
            if size is not None and total != size:
                raise Refused("invalid_argument", f"{total} bytes came, {size} were announced")
            if rights is not None:
                os.fchmod(fd, rights)
        finally:
            os.close(fd)
        os.replace(temporary, name)
    except BaseException as error:
        with suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError):
            raise OSError(error.errno, error.strerror, name) from None
        raise


def _move_in(placed: str, name: str, old: os.stat_result | None, mode: int | None, size: int | None) -> None:
    """A file that lies ready, whole and ours: over the old one, with the old one's owner and rights."""
    rights = modes.S_IMODE(old.st_mode) if mode is None and old is not None else mode
    try:
        fd = os.open(placed, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            found = os.fstat(fd)
            total = found.st_size
            if not modes.S_ISREG(found.st_mode) or (size is not None and total != size):
                raise Refused("invalid_argument", f"{total} bytes came, {size} were announced")
            if old is not None:
                _take_owner(fd, old)
            os.fchmod(fd, _MODE_NEW if rights is None else rights)
            try:
                os.replace(placed, name)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                _replace(name, old, _content(fd, total), mode, size)  # a mount of the same filesystem
        finally:
            os.close(fd)
    except OSError as error:
        raise OSError(error.errno, error.strerror, name) from None
    finally:
        with suppress(OSError):
            os.unlink(placed)


def _take_owner(fd: int, old: os.stat_result) -> bool:
    """Whether the new file could be given the old one's owner; False where only root could do that."""
    new = os.fstat(fd)
    if (new.st_uid, new.st_gid) == (old.st_uid, old.st_gid):
        return True
    try:
        os.fchown(fd, old.st_uid, old.st_gid)
    except OSError:
        return False
    return True
