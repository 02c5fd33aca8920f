"""Backup and restore of a server's record: the database and the files that open it, in one archive.

The database is copied by SQLite itself, page by page, while the server goes on writing; the copy is one moment of it.
The disks of sandboxes are not part of it. PostgreSQL has tools of its own for this.
"""

from __future__ import annotations

import io
import os
import shutil
import sqlite3
import tarfile
import tempfile
from contextlib import closing
from pathlib import Path

from alembic.config import Config
from alembic.script import ScriptDirectory

from atoll.app.serve import data_lock
from atoll.app.settings import Settings
from atoll.control.store import engine
from atoll.model import limits
from atoll.model.errors import Conflict, InvalidArgument, Unavailable

DATABASE = "atoll.db"
SECRETS = ("key", "link-secret", "secrets.key")
"""Small files without which the database alone is worth less: what opens the API, links and secrets."""
_PAGES_AT_ONCE = 1000  # between two of these others may write; about 4 MB


def backup(settings: Settings, target: Path) -> int:
    """Write an archive that only its owner can read; its size. A target that exists stays as it is."""
    _refuse_postgresql(settings)
    source = settings.data / DATABASE
    if not source.exists():
        raise InvalidArgument(f"there is no server's record in {settings.data}", code="no_record")
    try:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise Conflict(f"{target} exists already", code="target_exists", hint="Choose another name.") from None
    except OSError as error:
        raise Unavailable(f"{target} cannot be written: {error.strerror}", code="bad_target") from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            _write(settings.data, source, file)
            file.flush()
            os.fsync(file.fileno())
            return file.tell()
    except BaseException:
        target.unlink(missing_ok=True)
        raise


def _write(data: Path, source: Path, file: io.BufferedWriter) -> None:
    with tempfile.TemporaryDirectory(dir=data, prefix=".backup-") as folder:
        copy = Path(folder) / DATABASE
        with (
            closing(sqlite3.connect(f"file:{source}?mode=ro", uri=True)) as live,
            closing(sqlite3.connect(copy)) as new,
        ):
            live.backup(new, pages=_PAGES_AT_ONCE)
        _check(copy)
        with tarfile.open(fileobj=file, mode="w:gz") as archive:
            archive.add(copy, DATABASE)
            for name in SECRETS:
                if (data / name).exists():
                    archive.add(data / name, name)


def restore(settings: Settings, source: Path, *, replace: bool) -> None:
    """Put the record of an archive in the place of the one that is there, if any; all of it or nothing."""
    _refuse_postgresql(settings)
    with data_lock(settings.data), tempfile.TemporaryDirectory(dir=settings.data, prefix=".restore-") as folder:
        parts = _read(source, Path(folder))
        _check(parts[DATABASE])
        database = settings.data / DATABASE
        if database.exists() and not replace:
            raise Conflict(
                f"there is a record in {settings.data}",
                code="record_exists",
                hint="Use --replace to lose it, or another data directory.",
            )
        for suffix in ("-wal", "-shm"):  # of the record that goes: they must not be applied to the one that comes
            (settings.data / (DATABASE + suffix)).unlink(missing_ok=True)
        for name in (*SECRETS, DATABASE):  # the database last: it is what makes a record
            if name in parts:
                parts[name].chmod(0o600)
                parts[name].replace(settings.data / name)


def _read(source: Path, folder: Path) -> dict[str, Path]:
    """The known parts of an archive, as files in a folder. Names in it decide nothing."""
    parts: dict[str, Path] = {}
    try:
        with tarfile.open(source, "r:gz") as archive:
            for member in archive:
                if member.name in (DATABASE, *SECRETS) and member.isreg() and member.size <= limits.BACKUP_BYTES_MAX:
                    content = archive.extractfile(member)
                    assert content is not None
                    with content, open(folder / member.name, "wb") as file:
                        shutil.copyfileobj(content, file)
                    parts[member.name] = folder / member.name
    except (tarfile.TarError, OSError, EOFError) as error:
        raise InvalidArgument(f"{source} cannot be read: {error}", code="bad_backup") from error
    if DATABASE not in parts:
        raise InvalidArgument(f"{source} holds no record of a server", code="bad_backup")
    return parts


def _check(database: Path) -> None:
    """Refuse a database that is damaged, or of a newer version than this program."""
    try:
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
            (verdict,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
            (revision,) = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    except (sqlite3.DatabaseError, TypeError) as error:
        raise InvalidArgument(f"the database is not one of a server: {error}", code="bad_backup") from error
    config = Config()
    config.set_main_option("script_location", str(Path(engine.__file__).parent / "migrations"))
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if verdict != "ok" or revision not in known:
        why = "it is damaged" if verdict != "ok" else "it was written by a newer version"
        raise InvalidArgument(f"the database cannot be used: {why}", code="bad_backup")


def _refuse_postgresql(settings: Settings) -> None:
    if settings.database:
        raise InvalidArgument(
            "the record of this server is in PostgreSQL",
            code="not_sqlite",
            hint="Use pg_dump and pg_restore, and keep key, link-secret and secrets.key of the data directory.",
        )
