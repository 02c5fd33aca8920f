"""Backup and restore of a server's record: the database and the files that open it, in one archive.

The database is copied while the server goes on writing; the copy is one moment of it. From SQLite its pages are copied
in one step, from PostgreSQL its rows in one transaction; in the archive it is a SQLite database in both cases, so a
record may go from one to the other. The disks of sandboxes are not part of it.

    archive ──read, checked──▶ .restore-…/ ──rename──▶ restored/ ──database, then files──▶ gone

The rename decides: before it nothing has changed, and after it whoever comes next, a restore or a server, finishes.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
import re
import shutil
import sqlite3
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from atoll.app.settings import Settings
from atoll.control.store.copying import bring_forward, copy_database, has_record
from atoll.control.store.engine import scripts, sqlite_url
from atoll.model import limits
from atoll.model.errors import Conflict, InvalidArgument, OutOfSpace, Unavailable

DATABASE = "atoll.db"
_FILES = re.compile(r"key|link-secret|secrets\.key|export\.key|export\.pub|ca/[A-Za-z0-9._-]{1,253}\.(pem|key)")
"""Small files without which the database alone is worth less: what opens the API, links, secrets and exports."""
_RESTORED = "restored"
_FILES_MAX = 1000
_BACKUP = ".backup-"
_RESTORE = ".restore-"


def backup(settings: Settings, target: Path) -> int:
    """Write an archive that only its owner can read; its size. A target that exists stays as it is."""
    with _meaning(settings.data):
        return _backup(settings, target)


def _backup(settings: Settings, target: Path) -> int:
    if not _has_record(settings):
        where = "the database" if settings.database else settings.data
        raise InvalidArgument(f"there is no server's record in {where}", code="no_record")
    try:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise Conflict(f"{target} exists already", code="target_exists", hint="Choose another name.") from None
    except OSError as error:
        raise Unavailable(f"{target} cannot be written: {error.strerror}", code="bad_target") from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            _write(settings, file)
            file.flush()
            os.fsync(file.fileno())
            return file.tell()
    except BaseException:
        target.unlink(missing_ok=True)
        raise


@contextmanager
def _meaning(data: Path) -> Iterator[None]:
    """What an error of the disk or of SQLite means to whoever runs the command."""
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        if _is_no_room(error):
            raise OutOfSpace(
                "there is no room for a copy of the record",
                code="no_room",
                hint="Free some: the data directory and the file each need room for the whole database.",
            ) from error
        if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
            raise InvalidArgument(f"the database is not one of a server: {error}", code="bad_backup") from error
        reason = error.strerror or error if isinstance(error, OSError) else error
        raise Unavailable(
            f"the data directory {data} cannot be used: {reason}",
            code="data_unusable",
            hint="Run as root, or choose another with --data.",
        ) from error


def _is_no_room(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return isinstance(error, sqlite3.Error) and getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL


def _write(settings: Settings, file: io.BufferedWriter) -> None:
    data = settings.data
    with _shared(data), tempfile.TemporaryDirectory(dir=data, prefix=_BACKUP) as folder:
        copy = Path(folder) / DATABASE
        if settings.database:
            copy_database(settings.database, sqlite_url(copy))
        else:
            _copy_pages(data / DATABASE, copy)
        _check(copy)
        with tarfile.open(fileobj=file, mode="w:gz") as archive:
            archive.add(copy, DATABASE)
            for path in sorted((*data.glob("*"), *data.glob("ca/*"))):
                name = str(path.relative_to(data))
                if _FILES.fullmatch(name) and path.is_file() and not path.is_symlink():
                    archive.add(path, name)


def _copy_pages(source: Path, target: Path) -> None:
    """Copy a database at one moment. In steps it would begin again at each write in between, on a busy one for ever."""
    with (
        closing(sqlite3.connect(f"file:{source}?mode=ro", uri=True)) as live,
        closing(sqlite3.connect(target)) as new,
    ):
        live.backup(new)  # readers of a database with a write-ahead log keep no writer waiting


@contextmanager
def _shared(data: Path) -> Iterator[None]:
    """Backups at work, of which there may be several beside a server, hold a lock on the data directory itself."""
    with _opened(data) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield


def _sweep(data: Path) -> None:
    """Remove what backups and restores left that were cut short. While one is at work nothing is a leftover."""
    with _opened(data) as descriptor:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        for prefix in (_BACKUP, _RESTORE):
            for left in data.glob(prefix + "*"):
                shutil.rmtree(left)


def restore(settings: Settings, source: Path, *, replace: bool) -> None:
    """Put the record of an archive in the place of the one that is there, if any; all of it or nothing.

    The caller has locked data directory and database.
    """
    finish(settings)
    with _meaning(settings.data):
        _prepare(settings, source, replace=replace)
    finish(settings)


def _prepare(settings: Settings, source: Path, *, replace: bool) -> None:
    """Lay the parts of an archive, checked, where `finish` takes them from."""
    with tempfile.TemporaryDirectory(dir=settings.data, prefix=_RESTORE) as folder:
        parts = Path(folder) / "parts"
        parts.mkdir(mode=0o700)
        _read(source, parts)
        _check(parts / DATABASE)
        bring_forward(sqlite_url(parts / DATABASE))
        if _has_record(settings) and not replace:
            raise Conflict(
                f"there is a record in {'the database' if settings.database else settings.data}",
                code="record_exists",
                hint="Use --replace to lose it, or another data directory or database.",
            )
        parts.rename(settings.data / _RESTORED)
        _sync(settings.data)


def finish(settings: Settings) -> None:
    """Do what is left of a restore that was cut short, if there is one, and remove what is left of others.

    The caller has locked all that it uses.
    """
    with _meaning(settings.data):
        _finish(settings)


def _finish(settings: Settings) -> None:
    data, parts = settings.data, settings.data / _RESTORED
    _sweep(data)
    if not parts.exists():
        return
    if (parts / DATABASE).exists():  # else that is done
        if settings.database:
            copy_database(sqlite_url(parts / DATABASE), settings.database)
            (parts / DATABASE).unlink()
        else:
            for suffix in ("-wal", "-shm"):  # of the record that goes: they must not be applied to the one that comes
                (data / (DATABASE + suffix)).unlink(missing_ok=True)
            (parts / DATABASE).replace(data / DATABASE)
    for path in sorted(parts.glob("**/*")):
        name = path.relative_to(parts)
        if path.is_file() and _FILES.fullmatch(str(name)):
            (data / name).parent.mkdir(mode=0o700, exist_ok=True)
            path.replace(data / name)
    shutil.rmtree(parts)


def _has_record(settings: Settings) -> bool:
    return has_record(settings.database) if settings.database else (settings.data / DATABASE).exists()


def _read(source: Path, folder: Path) -> None:
    """The known parts of an archive, as files in a folder. Names in it decide nothing."""
    count = 0
    try:
        with tarfile.open(source, "r:gz") as archive:
            for member in archive:
                known = member.name == DATABASE or _FILES.fullmatch(member.name)
                if known and member.isreg() and member.size <= limits.BACKUP_BYTES_MAX and count < _FILES_MAX:
                    count += 1
                    _unpack(archive, member, folder / member.name)
    except (tarfile.TarError, zlib.error, OSError, EOFError) as error:
        if _is_no_room(error):
            raise
        raise InvalidArgument(f"{source} cannot be read: {error}", code="bad_backup") from error
    if not (folder / DATABASE).exists():
        raise InvalidArgument(f"{source} holds no record of a server", code="bad_backup")


def _unpack(archive: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    content = archive.extractfile(member)
    assert content is not None
    target.parent.mkdir(mode=0o700, exist_ok=True)
    with content, open(target, "wb") as file:
        os.fchmod(file.fileno(), 0o600)
        shutil.copyfileobj(content, file)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    with _opened(folder) as descriptor:
        os.fsync(descriptor)


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _check(database: Path) -> None:
    """Refuse a database that is damaged, or of a newer version than this program."""
    try:
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
            (verdict,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
            (revision,) = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    except (sqlite3.DatabaseError, TypeError) as error:
        raise InvalidArgument(f"the database is not one of a server: {error}", code="bad_backup") from error
    known = {script.revision for script in scripts().walk_revisions()}
    if verdict != "ok" or revision not in known:
        why = "it is damaged" if verdict != "ok" else "it was written by a newer version"
        raise InvalidArgument(f"the database cannot be used: {why}", code="bad_backup")
