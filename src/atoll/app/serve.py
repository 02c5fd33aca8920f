"""Serving: one process on one port, from the lock on its data directory to an orderly stop.

SIGTERM and SIGINT end it in order: no new requests, those under way are finished or undone, and the sandboxes go on
without it, unless it was told to drain, which ends them all. A second signal does not wait for requests.
"""

from __future__ import annotations

import asyncio
import fcntl
import functools
import gc
import os
import resource
import signal
import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import anyio
import structlog
import uvicorn

from atoll.api.connection import Connection
from atoll.app import backup, logging
from atoll.app.settings import Settings, parse_listen
from atoll.app.single import NodeOpener, Server, compose, open_node
from atoll.control.store import sole
from atoll.model import limits
from atoll.model.errors import Conflict, Unavailable
from atoll.wire import codec

log = structlog.get_logger(__name__)


def run(settings: Settings, drain_on_stop: bool = False) -> None:
    """Serve until a signal comes. Raises an AtollError where it cannot."""
    logging.configure(settings)
    descriptors_raise()
    anyio.run(serve, settings, drain_on_stop, backend_options={"use_uvloop": True})


def descriptors_raise() -> None:
    """As many open files as we may have: a shell's usual 1024 are used up by some sixty sandboxes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = limits.DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, limits.DESCRIPTORS_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        log.debug("descriptors", before=soft, now=wanted)


def threads_raise() -> None:
    """Enough threads that some who wait for a slow disk keep nobody else waiting."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(limits.SERVER_THREADS_MAX, "atoll"))


def settle_heap() -> None:
    """What a server is made of stays: the collector need not go through it again, for 24 ms (seen) amid a request."""
    gc.collect()
    gc.freeze()


async def serve(settings: Settings, drain_on_stop: bool = False, open_node: NodeOpener = open_node) -> None:
    """Serve until SIGTERM or SIGINT, then stop in order."""
    threads_raise()
    try:
        with data_lock(settings.data), listening(settings.listen) as listener:
            async with sole.kept(settings.database):
                backup.finish(settings)
                tls = tls_context(settings)
                async with compose(settings, open_node) as server:
                    with announced(settings.data, _url(listener, tls is not None), ca_path(settings)):
                        await _serve(server, listener, settings, tls)
                    if drain_on_stop:
                        await server.control.drain()
    except BaseExceptionGroup as group:
        raise _only(group) from None


async def _serve(
    server: Server, listener: socket.socket, settings: Settings, tls: ssl.SSLContext | None = None
) -> None:
    config = uvicorn.Config(
        server.app,
        http=cast(Any, functools.partial(Connection, claims=server.ports.claims)),
        ws="websockets-sansio",
        ws_max_size=limits.SOCKET_MESSAGE_BYTES_MAX,
        ws_ping_interval=limits.SOCKET_PING_S,
        ws_ping_timeout=limits.SOCKET_PING_S,
        ws_per_message_deflate=False,
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=limits.HTTP_KEEP_ALIVE_S,
        timeout_graceful_shutdown=max(1, round(settings.stop_s)),
        ssl_context_factory=(lambda *_: tls) if tls is not None else None,
    )
    http = uvicorn.Server(config)
    http.capture_signals = _no_signals  # type: ignore[method-assign] # they are ours: see below
    async with anyio.create_task_group() as tasks:
        await tasks.start(_stop_on_signal, http)
        settle_heap()
        log.info("serving", url=_url(listener, tls is not None), data=str(settings.data), pid=os.getpid())
        await http.serve(sockets=[listener])
        if http.server_state.tasks:  # requests that were cancelled undo what they had begun
            await asyncio.wait(http.server_state.tasks, timeout=limits.KILL_WAIT_S_MAX)
        tasks.cancel_scope.cancel()
    log.info("stopped")


async def _stop_on_signal(http: uvicorn.Server, *, task_status: anyio.abc.TaskStatus[None]) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        async for number in signals:
            log.info("stopping", signal=signal.Signals(number).name)
            http.force_exit = http.should_exit
            http.should_exit = True


@contextmanager
def _no_signals() -> Iterator[None]:
    """The HTTP server would end the process by the signal it has caught, and our own stop would not happen."""
    yield


@contextmanager
def data_lock(data: Path) -> Iterator[None]:
    """The data directory for ourselves alone. The kernel gives the lock back whatever becomes of us."""
    try:
        data.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(data / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Unavailable(
            f"the data directory {data} cannot be used: {error.strerror}",
            code="data_unusable",
            hint="Run as root, or choose another with --data.",
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise Conflict(
            f"another server is using the data directory {data}",
            code="data_in_use",
            hint="Stop that one, or choose another directory with --data.",
        ) from None
    try:
        yield
    finally:
        os.close(descriptor)


@contextmanager
def locked(settings: Settings) -> Iterator[None]:
    """All that a server of these settings uses for ourselves alone: its data directory, and its database."""
    with data_lock(settings.data), sole.held(settings.database):
        yield


@contextmanager
def listening(listen: str) -> Iterator[socket.socket]:
    """A socket that callers can connect to from now on."""
    host, port = parse_listen(listen)
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = socket.create_server(
            (str(address[0]), int(address[1])), family=family, backlog=limits.HTTP_BACKLOG, reuse_port=False
        )
    except OSError as error:
        raise Unavailable(
            f"cannot listen on {listen}: {error.strerror or error}",
            code="cannot_listen",
            hint="Choose another address with --listen; port 0 takes a free one.",
        ) from error
    with listener:
        _probe_clients(listener)
        yield listener


def _probe_clients(listener: socket.socket) -> None:
    """One that vanished without a word is noticed, too; connections have this from their listener."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, limits.HTTP_PROBE_AFTER_S)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, limits.HTTP_PROBE_EVERY_S)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, limits.HTTP_PROBES_MAX)


@contextmanager
def announced(data: Path, url: str, ca: Path | None = None) -> Iterator[None]:
    """Say in `server.json` where the server is, for the SDK and the CLI on this machine. It holds no secret."""
    known = {"url": url, "pid": os.getpid()} | ({"ca": str(ca)} if ca is not None else {})
    path = data / "server.json"
    draft = data / "server.json.new"
    draft.write_bytes(codec.encode(known) + b"\n")
    draft.chmod(0o644)
    draft.replace(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """How to serve with TLS, if the operator wants it."""
    if not settings.has_tls:
        return None
    from atoll.app import tls  # a large import that most servers do without

    if settings.tls_cert is not None and settings.tls_key is not None:
        return tls.brought_context(settings.tls_cert, settings.tls_key)
    return tls.own_context(settings.data, settings.domain)


def ca_path(settings: Settings) -> Path | None:
    """What callers on this machine must trust, if it is a CA of our own."""
    return settings.data / "ca" / "ca.pem" if settings.has_tls and settings.tls_cert is None else None


def _url(listener: socket.socket, has_tls: bool = False) -> str:
    """An address that works on this machine, also for a server that listens on all of its addresses."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - replaced, not bound
    scheme = "https" if has_tls else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _only(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The one error in nested groups, so that a caller sees what it was; a group of several stays one."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
