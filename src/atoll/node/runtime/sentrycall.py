"""A call to a sentry's control socket: what `runsc pause` says, without the 30 ms of starting runsc.

gVisor's urpc, as far as it is needed: one JSON object each way on a unix stream, {"method", "arg"} and {"success",
"err", "result"}; descriptors go along with the first byte. The sentry is trusted to be ours and not to be well: every
wait is bounded, and so is what it says.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio

from atoll.model import limits
from atoll.model.errors import Internal

KNOWN_COMMIT = "160fafc42237"
"""The gVisor whose words for checkpoint and restore were read and tried, as in our go.mod. They are gVisor's own affair
and may change with any other, which is therefore spoken to by its own program."""

PAUSE = "containerManager.Pause"
RESUME = "containerManager.Resume"
CHECKPOINT = "containerManager.Checkpoint"
NETWORK = "containerManager.SetNetworkArgs"
RESTORE = "containerManager.Restore"


async def call(
    path: Path,
    method: str,
    arg: Mapping[str, Any] | None = None,
    fds: Sequence[int] = (),
    timeout_s: float = limits.SENTRY_CALL_S_MAX,
) -> None:
    """Have the sentry do this. Not given up half way: who is cancelled waits, so that what was done is known."""
    try:
        with anyio.CancelScope(shield=True), anyio.fail_after(timeout_s):
            result = await _exchange(path, json.dumps({"method": method, "arg": arg}).encode(), fds)
    except (OSError, TimeoutError, ValueError) as error:
        raise Internal("the runtime does not answer", code="runtime_failed", detail=f"{method}: {error!r}") from error
    if result.get("success") is not True:
        raise Internal("the runtime refused", code="runtime_failed", detail=f"{method}: {result.get('err')}")


async def _exchange(path: Path, request: bytes, fds: Sequence[int]) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC) as connection:
        with _short_name(path) as name:
            await loop.sock_connect(connection, name)
        sent = socket.send_fds(connection, [request], list(fds))  # a fresh stream has room for it
        if sent < len(request):
            await loop.sock_sendall(connection, request[sent:])
        answer = b""
        while (result := parse_answer(answer)) is None:
            data = await loop.sock_recv(connection, limits.SENTRY_ANSWER_BYTES_MAX)
            answer += data
            if not data or len(answer) > limits.SENTRY_ANSWER_BYTES_MAX:
                raise ValueError(f"no answer in {len(answer)} bytes")
    return result


@contextmanager
def _short_name(path: Path) -> Iterator[str]:
    """Another name for a socket: one of over 108 bytes cannot be connected to, and a data directory may be deep."""
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def parse_answer(data: bytes) -> dict[str, Any] | None:
    """The answer, or None while it is not complete; its end is the end of the object."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        raise ValueError("an answer that is no object")
    return value
