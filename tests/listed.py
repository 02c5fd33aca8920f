"""What a guest lists, read to its end through a link."""

from __future__ import annotations

from typing import Any

from atoll.node.guestlink import GuestLink
from atoll.wire import guest


async def listed(link: GuestLink, op: str, params: dict[str, Any] | None = None) -> tuple[list[Any], dict[str, Any]]:
    """All entries, and what is said at the end."""
    entries: list[Any] = []
    async with link.stream(op, params, idle_s=30) as stream:
        async for message in stream:
            if isinstance(message, guest.End):
                return entries, message.value
            assert isinstance(message, guest.Event)
            entries += message.value["entries"]
    raise AssertionError("the list has no end")
