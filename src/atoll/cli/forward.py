"""`atoll forward`: a port of a sandbox as a port of this machine, for any protocol over TCP."""

from __future__ import annotations

import os
import re
import signal

import anyio
import click
from anyio.abc import ByteStream, SocketAttribute, SocketStream

from atoll.cli.find import find
from atoll.client._config import Config, discover
from atoll.client._tunnel import Tunnel, tunnel_open
from atoll.model.errors import AtollError, Unavailable
from atoll.model.port import port_parse

_PORTS = re.compile(r"(\d{1,5})(?::(\d{1,5}))?")


def ports_parse(text: str) -> tuple[int, int]:
    """`5432` or `5432:15432`: the port inside, and the one here; 0 takes a free one."""
    match = _PORTS.fullmatch(text)
    if match is None:
        raise click.BadParameter("write PORT or PORT:LOCAL, as in 5432:15432")
    local = match[2] or match[1]
    return port_parse(match[1]), 0 if local == "0" else port_parse(local)


@click.command()
@click.argument("sandbox", metavar="ID")
@click.argument("ports", metavar="PORT[:LOCAL]")
@click.option("--address", default="127.0.0.1", show_default=True, help="The address of this machine to listen on.")
def forward(sandbox: str, ports: str, address: str) -> None:
    """Make a port of a sandbox a port of this machine, until Ctrl-C.

    \b
        atoll forward ID 5432            psql -h 127.0.0.1 -p 5432
        atoll forward ID 5432:15432      psql -h 127.0.0.1 -p 15432
    """
    inside, local = ports_parse(ports)
    with_sandbox = find(sandbox)
    with_sandbox.close()
    config = discover(None, None, os.environ)
    anyio.run(_forward, config, with_sandbox.id, inside, address, local)


async def _forward(config: Config, sandbox_id: str, inside: int, address: str, local: int) -> None:
    try:
        listener = await anyio.create_tcp_listener(local_host=address, local_port=local)
    except OSError as error:
        raise Unavailable(
            f"cannot listen on {address}:{local}: {error.strerror or error}",
            code="cannot_listen",
            hint="Choose another port of this machine: PORT:LOCAL, where LOCAL 0 takes a free one.",
        ) from error

    async def serve(stream: SocketStream) -> None:
        async with stream:
            try:
                tunnel = await tunnel_open(config, sandbox_id, inside)
            except AtollError as error:
                click.echo(f"refused: {error.message}", err=True)
                return
            async with tunnel.stream:
                await relay(stream, tunnel)

    async with listener, anyio.create_task_group() as tasks:
        port = listener.extra(SocketAttribute.local_port)  # noqa: S610 - nothing of Django
        click.echo(f"{address}:{port} is port {inside} of {sandbox_id}; Ctrl-C ends it", err=True)
        tasks.start_soon(listener.serve, serve)
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for _ in signals:
                tasks.cancel_scope.cancel()
                break


async def relay(here: ByteStream, tunnel: Tunnel) -> None:
    """Bytes both ways; an end of one direction is passed on, a broken one ends both."""
    async with anyio.create_task_group() as tasks:

        async def way(source: ByteStream, target: ByteStream, early: bytes = b"") -> None:
            try:
                if early:
                    await target.send(early)
                async for data in source:
                    await target.send(data)
                await target.send_eof()
            except (anyio.BrokenResourceError, anyio.ClosedResourceError, NotImplementedError):
                tasks.cancel_scope.cancel()  # NotImplementedError: TLS has no end of one direction

        tasks.start_soon(way, here, tunnel.stream)
        tasks.start_soon(way, tunnel.stream, here, tunnel.early)
