"""Bodies about the machine that sandboxes run on."""

from __future__ import annotations

from atoll.wire.public.base import Answer


class WarmView(Answer):
    """What is ready of one template: sandboxes that live, and boxes that need only to be brought to life."""

    live: int
    shells: int


class NodeView(Answer):
    """What the machine has and how much of it is used."""

    sandboxes: int
    memory_total_bytes: int
    memory_available_bytes: int
    memory_promised_bytes: int
    disk_total_bytes: int
    disk_free_bytes: int
    warm: dict[str, WarmView]
    warm_max: int = 0
