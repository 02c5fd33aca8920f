"""Bodies about ports that listen inside a sandbox."""

from __future__ import annotations

from atoll.wire.public.base import Answer


class PortView(Answer):
    """A port that listens, and by which process, as far as that can be seen."""

    address: str
    port: int
    pid: int | None = None
    process: str | None = None


class PortList(Answer):
    items: list[PortView]


class PortsListening(Answer, tag="listening", tag_field="type"):
    """The first event of a watch: what listens now."""

    items: list[PortView]


class PortOpened(Answer, tag="opened", tag_field="type"):
    port: PortView


class PortClosed(Answer, tag="closed", tag_field="type"):
    address: str
    port: int


PortEvent = PortsListening | PortOpened | PortClosed
