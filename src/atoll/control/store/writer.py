"""The one who writes: a thread that takes what has come in meanwhile and commits it as one transaction.

    callers ──▶ queue ──▶ BEGIN, savepoint + query, savepoint + query, ..., COMMIT ──▶ each its own answer

Each query is all or nothing for itself: what one of them raises undoes that one and no other, because each has a
savepoint. They run one after the other, so whoever counts and then adds is alone, as in a transaction of their own. An
answer is given when the commit is done; a commit that fails fails them all.

So twenty creates at once cost a few commits and not forty, and nobody waits for company: what comes alone runs at once.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, TypeVar

import anyio
from sqlalchemy import Connection, Engine

from atoll.model import limits

T = TypeVar("T")
Query = Callable[[Connection], Any]


@dataclass(frozen=True, slots=True)
class _Job:
    query: Query
    answer: asyncio.Future[Any]


@dataclass(frozen=True, slots=True)
class _Outcome:
    value: Any = None
    error: BaseException | None = None


class Writer:
    """One thread with one connection. `start` and `close` are called on the event loop that its callers live on."""

    def __init__(self, engine: Engine, *, keep_connection: bool) -> None:
        """A connection that is kept is not asked whether it still works: right for a file, not for a server."""
        self._engine = engine.execution_options(atoll_writer=True)
        self._keep_connection = keep_connection
        self._kept: Connection | None = None
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="atoll-writer", daemon=True)

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    async def close(self) -> None:
        """Let what has been asked for be done, and end."""
        self._queue.put(None)
        await anyio.to_thread.run_sync(self._thread.join)

    async def run(self, query: Callable[[Connection], T]) -> T:
        """The answer of a query, when it is committed. Waited for also by a caller who is cancelled."""
        answer: asyncio.Future[T] = self._loop.create_future()
        self._queue.put(_Job(query, answer))
        with anyio.CancelScope(shield=True):
            await answer
        return answer.result()

    def _serve(self) -> None:
        closing = False
        while not closing:
            jobs = [self._queue.get()]
            while len(jobs) < limits.DATABASE_GROUP_MAX and not self._queue.empty():
                jobs.append(self._queue.get())
            closing = None in jobs
            self._serve_group([job for job in jobs if job is not None])
        self._drop_connection()

    def _serve_group(self, jobs: Sequence[_Job]) -> None:
        if not jobs:
            return
        try:
            with self._connection() as connection, connection.begin():
                outcomes = [_attempt(connection, job.query, alone=len(jobs) == 1) for job in jobs]
        except BaseException as error:  # whatever it is, those who wait hear of it and the thread goes on
            self._drop_connection()
            outcomes = [_Outcome(error=error)] * len(jobs)
        self._loop.call_soon_threadsafe(_tell, jobs, outcomes)

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        if not self._keep_connection:
            with self._engine.connect() as connection:
                yield connection
            return
        if self._kept is None:
            self._kept = self._engine.connect()
        yield self._kept

    def _drop_connection(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None


def _attempt(connection: Connection, query: Query, *, alone: bool) -> _Outcome:
    """Run one query of a group. One that is alone needs no savepoint: its error ends the transaction."""
    if alone:
        return _Outcome(query(connection))
    connection.exec_driver_sql("SAVEPOINT one")
    try:
        value = query(connection)
    except Exception as error:  # its caller's business; where the whole transaction is gone, the next line says so
        connection.exec_driver_sql("ROLLBACK TO SAVEPOINT one")
        return _Outcome(error=error)
    finally:
        connection.exec_driver_sql("RELEASE SAVEPOINT one")
    return _Outcome(value)


def _tell(jobs: Sequence[_Job], outcomes: Sequence[_Outcome]) -> None:
    for job, outcome in zip(jobs, outcomes, strict=True):
        if job.answer.done():  # its task was ended by force
            continue
        if outcome.error is not None:
            job.answer.set_exception(outcome.error)
        else:
            job.answer.set_result(outcome.value)
