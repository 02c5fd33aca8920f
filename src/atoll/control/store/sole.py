"""One server on one database: on PostgreSQL a lock that lasts as long as a session of its own.

A server makes record and node agree, and what its own node does not have is lost to it: two on one database would end
each other's sandboxes. SQLite lies in the data directory, which is locked itself. When PostgreSQL is restarted the lock
is gone with the session, so it is looked at again and again, and taken again; who finds that somebody else was faster
must end.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import anyio
import anyio.to_thread
import structlog
from sqlalchemy import Connection, text

from atoll.control.store.engine import database_engine, meaning
from atoll.model import limits
from atoll.model.errors import Conflict, Unavailable

log = structlog.get_logger(__name__)

_LOCK = 0x61746F6C6D  # another number than that of writers
_TAKE = text(f"SELECT pg_try_advisory_lock({_LOCK})")
_LOOK = text("SELECT 1")
_AGAIN_S = 0.05


class SoleUse:
    """The lock of one server on its database. Used by one thread at a time."""

    def __init__(self, url: str) -> None:
        self._engine = database_engine(url)
        self._session: Connection | None = None
        """The one that holds it."""

    def take(self) -> bool:
        """Take the lock, or see that it is held still; Unavailable if the database does not answer."""
        with meaning():
            try:
                if self._session is not None:
                    self._session.execute(_LOOK)
                    return True
                self._session = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
                taken = bool(self._session.execute(_TAKE).scalar_one())
            except BaseException:
                self._drop()
                raise
        if not taken:
            self._drop()
        return taken

    def take_soon(self) -> None:
        """Take it within a moment: the session of a server that was killed may end a little later than the server."""
        until_s = time.monotonic() + limits.DATABASE_BUSY_S
        while not self.take():
            if time.monotonic() >= until_s:
                raise _taken()
            time.sleep(_AGAIN_S)

    async def keep(self) -> None:
        """Hold it for ever; Conflict (database_in_use) if it was lost and somebody else has it."""
        while True:
            await anyio.sleep(limits.DATABASE_HELD_LOOK_S)
            try:
                if not await anyio.to_thread.run_sync(self.take):
                    raise _taken()
            except Unavailable as error:  # all else that needs the database says so, too
                log.debug("database_not_held", error=repr(error))

    def close(self) -> None:
        self._drop()
        self._engine.dispose()

    def _drop(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.invalidate()
            session.close()


@contextmanager
def held(url: str) -> Iterator[SoleUse | None]:
    """A database for ourselves alone; nothing for that in a file, of which the data directory's lock is enough."""
    if not url or url.startswith("sqlite:"):
        yield None
        return
    sole = SoleUse(url)
    try:
        sole.take_soon()
        yield sole
    finally:
        sole.close()


@asynccontextmanager
async def kept(url: str) -> AsyncIterator[None]:
    """The same for as long as a server runs. Whoever is in the block is stopped when it is lost for good."""
    with held(url) as sole:
        async with anyio.create_task_group() as tasks:
            if sole is not None:
                tasks.start_soon(sole.keep)
            yield
            tasks.cancel_scope.cancel()


def _taken() -> Conflict:
    return Conflict(
        "another server is using the database",
        code="database_in_use",
        hint="Stop that one, or give this one a database of its own.",
    )
