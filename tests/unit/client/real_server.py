"""The real server on a node without a machine, as a program: its data directory is the argument."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from atoll.app import logging
from atoll.app.serve import serve
from atoll.app.settings import Settings
from atoll.testing.nodes import FakeNode
from atoll.wire.node import NodePort


@asynccontextmanager
async def open_fake_node(_: Settings) -> AsyncIterator[NodePort]:
    async with FakeNode.open() as node:
        yield node


if __name__ == "__main__":
    chosen = Settings(listen="127.0.0.1:0", data=Path(sys.argv[1]), log_level="error")
    logging.configure(chosen)
    anyio.run(serve, chosen, False, open_fake_node, backend_options={"use_uvloop": True})
