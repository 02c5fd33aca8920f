"""Raw TCP to a port of a sandbox, through the API: one upgraded HTTP connection for each connection."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from urllib.parse import urlsplit

import anyio
from anyio.abc import ByteStream

from atoll.client import _exchange as exchange
from atoll.client import _tls
from atoll.client._config import Config
from atoll.model import limits
from atoll.model.errors import ConnectionFailed


@dataclass(frozen=True, slots=True)
class Tunnel:
    """An open way to the port, and what has already come through it."""

    stream: ByteStream
    early: bytes


async def tunnel_open(config: Config, sandbox_id: str, port: int) -> Tunnel:
    """A connection to the port. An answer other than the upgrade is raised as its error."""
    parts = urlsplit(config.url)
    host = parts.hostname or ""
    stream: ByteStream
    try:
        with anyio.fail_after(limits.CLIENT_CONNECT_S_MAX):
            number = parts.port or (443 if config.is_tls else 80)
            stream = await anyio.connect_tcp(host, number)
            if config.is_tls:
                stream = await _encrypted(stream, host, _tls.context(config))
    except (OSError, TimeoutError) as error:
        raise ConnectionFailed(f"{config.url} does not answer: {error}") from error
    try:
        path = f"{parts.path}/v1/sandboxes/{exchange.segment(sandbox_id)}/ports/{port}/tunnel"
        await stream.send(_request(path, parts.netloc, config.api_key))
        return await _answer(stream)
    except BaseException:
        await anyio.aclose_forcefully(stream)
        raise


async def _encrypted(stream: ByteStream, host: str, context: ssl.SSLContext) -> ByteStream:
    from anyio.streams.tls import TLSStream

    return await TLSStream.wrap(stream, hostname=host, ssl_context=context, standard_compatible=False)


def _request(path: str, host: str, key: str) -> bytes:
    lines = [
        f"GET {path} HTTP/1.1",
        f"Host: {host}",
        f"Authorization: Bearer {key}",
        "Connection: Upgrade",
        "Upgrade: atoll-tcp",
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


async def _answer(stream: ByteStream) -> Tunnel:
    data = b""
    with anyio.fail_after(limits.CLIENT_ANSWER_S_MAX):
        while b"\r\n\r\n" not in data:
            data += await _more(stream, data)
    head, _, rest = data.partition(b"\r\n\r\n")
    status = int(head[9:12]) if head.startswith(b"HTTP/1.1 ") and head[9:12].isdigit() else 0
    if status == 101:
        return Tunnel(stream, rest)
    length = next((line[15:] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), b"0")
    wanted = min(int(length), limits.HTTP_HEAD_BYTES_MAX) if length.strip().isdigit() else 0
    with anyio.fail_after(limits.CLIENT_ANSWER_S_MAX):
        while len(rest) < wanted:
            rest += await _more(stream, rest)
    raise exchange.answer_error(status, rest)


async def _more(stream: ByteStream, before: bytes) -> bytes:
    if len(before) > limits.HTTP_HEAD_BYTES_MAX:
        raise ConnectionFailed("the answer is not one of a server of ours")
    try:
        return await stream.receive()
    except (anyio.EndOfStream, anyio.BrokenResourceError) as error:
        raise ConnectionFailed("the connection broke before its answer was complete") from error
