"""Bodies about reaching a port of a sandbox: who may, and by which address."""

from __future__ import annotations

from datetime import datetime

from atoll.model import limits
from atoll.wire.public.base import Answer, Request


class PortLinkCreate(Request):
    """Ask for an address that opens a port without a key, until it expires."""

    expires_s: float = limits.PORT_LINK_S_DEFAULT


class PortLinkView(Answer):
    """How to reach a port. `url` is for browsers and curl; `base_url` with `headers` where its name is not resolved."""

    url: str
    base_url: str
    headers: dict[str, str]
    port: int
    public: bool
    expires_at: datetime | None = None


class PortAccessChange(Request):
    """Change who may reach a port; what is left out stays. `revoke_links` makes all links before it worthless."""

    public: bool | None = None
    mask_host: str | None = None
    revoke_links: bool = False


class PortAccessView(Answer):
    """Who may reach a port, and the Host that the server inside gets; an empty `mask_host` is the caller's own."""

    port: int
    public: bool
    mask_host: str
