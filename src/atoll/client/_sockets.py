"""WebSockets in both flavours, with our errors: `AsyncSocket` for one, `Socket` for the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from atoll.client import _exchange as exchange
from atoll.client import _tls
from atoll.client._config import Config
from atoll.model import limits
from atoll.model.errors import AtollError, ConnectionFailed

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection as AsyncConnection
    from websockets.sync.client import ClientConnection as SyncConnection


def _address(config: Config, path: str) -> str:
    return "ws" + config.url.removeprefix("http") + path


def _options(config: Config) -> dict[str, Any]:
    # A proxy of the environment is for other machines; a server on this one is reached directly.
    options: dict[str, Any] = {
        "additional_headers": {"authorization": f"Bearer {config.api_key}"},
        "user_agent_header": "atoll-sdk",
        "compression": None,
        "open_timeout": limits.CLIENT_CONNECT_S_MAX,
        "close_timeout": 1.0,
        "max_size": 2 * limits.SOCKET_MESSAGE_BYTES_MAX,
    }
    if config.is_tls:
        options["ssl"] = _tls.context(config)
    return options | ({"proxy": None} if config.is_loopback else {})


def _error(error: Exception, config: Config) -> AtollError:
    """The error behind a WebSocket that was refused, could not be opened, or broke."""
    from websockets.exceptions import ConnectionClosed, InvalidStatus

    if isinstance(error, InvalidStatus):
        return exchange.answer_error(error.response.status_code, bytes(error.response.body or b""))
    sent = isinstance(error, ConnectionClosed)
    failure = exchange.Failure(sent=sent, timed_out=False, reason=str(error) or type(error).__name__)
    return exchange.failure_error(failure, config.url)


class AsyncSocket:
    """One open WebSocket."""

    def __init__(self, connection: AsyncConnection, config: Config) -> None:
        self._connection = connection
        self._config = config

    @classmethod
    async def open(cls, config: Config, path: str) -> AsyncSocket:
        from websockets.asyncio.client import connect
        from websockets.exceptions import WebSocketException

        try:
            return cls(await connect(_address(config, path), **_options(config)), config)
        except (OSError, WebSocketException) as error:
            raise _error(error, config) from error

    async def send(self, message: bytes | str) -> None:
        from websockets.exceptions import ConnectionClosed

        try:
            await self._connection.send(message)
        except ConnectionClosed as error:
            raise _error(error, self._config) from error

    async def receive(self) -> bytes | str:
        from websockets.exceptions import ConnectionClosed

        try:
            return await self._connection.recv()
        except ConnectionClosed as error:
            raise _error(error, self._config) from error

    async def aclose(self) -> None:
        await self._connection.close()


class Socket:
    """The same without `await`."""

    def __init__(self, connection: SyncConnection, config: Config) -> None:
        self._connection = connection
        self._config = config

    @classmethod
    def open(cls, config: Config, path: str) -> Socket:
        from websockets.exceptions import WebSocketException
        from websockets.sync.client import connect

        try:
            return cls(connect(_address(config, path), legacy=True, **_options(config)), config)
        except (OSError, WebSocketException) as error:
            raise _error(error, config) from error

    def send(self, message: bytes | str) -> None:
        from websockets.exceptions import ConnectionClosed

        try:
            self._connection.send(message)
        except ConnectionClosed as error:
            raise _error(error, self._config) from error

    def receive(self) -> bytes | str:
        from websockets.exceptions import ConnectionClosed

        try:
            return self._connection.recv()
        except ConnectionClosed as error:
            raise _error(error, self._config) from error

    def close(self) -> None:
        self._connection.close()


def never_opened() -> ConnectionFailed:
    return ConnectionFailed("the terminal is not connected", code="connection_lost")
