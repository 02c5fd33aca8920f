"""A PostgreSQL server of a test's own, from the programs of the distribution, on a socket in a folder of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa

USER = "postgres"
START_S_MAX = 30


class Postgres:
    """A running server. It does not sync: what a crash of the machine costs is of no interest here."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self._folder = folder
        self._programs = programs
        self._made = 0

    def url(self, database: str) -> str:
        return f"postgresql://{USER}@/{database}?host={self._folder}"

    def database(self) -> str:
        """The address of a new, empty database."""
        self._made += 1
        name = f"test{self._made}"
        engine = sa.create_engine(self.url("postgres").replace("postgresql:", "postgresql+psycopg:"))
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql(f"CREATE DATABASE {name}")
        engine.dispose()
        return self.url(name)

    def start(self) -> None:
        options = f"-k {self._folder} -c listen_addresses= -c fsync=off -c max_connections=50 -c shared_buffers=16MB"
        self._run("pg_ctl", "start", "-w", "-D", str(self._data), "-l", str(self._folder / "log"), "-o", options)

    def stop(self) -> None:
        """At once, as a crash would: connections break, what is committed stays."""
        self._run("pg_ctl", "stop", "-w", "-m", "immediate", "-D", str(self._data))

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    def create(self) -> None:
        self._run("initdb", "-D", str(self._data), "-A", "trust", "-U", USER, "--no-sync", "-E", "UTF8")

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(  # noqa: TID251 - the node's own way belongs to the node
            [str(self._programs / program), *arguments],
            user=USER if os.geteuid() == 0 else None,  # it refuses to run as root
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # a pipe would be kept open by the server
            stderr=subprocess.DEVNULL,
            timeout=START_S_MAX,
            check=False,
        )
        if done.returncode != 0:
            log = self._folder / "log"
            raise AssertionError(f"{program} failed: {log.read_text() if log.exists() else ''}")


def programs() -> Path | None:
    """Where the newest PostgreSQL of this machine is, if it has one."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[4]))
    return found[-1].parent if found else None


@contextmanager
def running() -> Iterator[Postgres]:
    """A server that is gone, with all that it kept, at the end."""
    where = programs()
    assert where is not None, "PostgreSQL is not installed: apt-get install postgresql"
    folder = Path(tempfile.mkdtemp(prefix="atoll-pg-"))
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, USER)
        server = Postgres(folder, where)
        server.create()
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
