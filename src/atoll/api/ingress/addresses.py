"""Addresses of ports: how a caller who asked for one reaches it, by name or with headers; pure."""

from __future__ import annotations

from dataclasses import dataclass

from atoll.api.ingress.heads import TOKEN_QUERY
from atoll.control.ingress import PortLink
from atoll.wire.public import PortLinkView


@dataclass(frozen=True, slots=True)
class Addresses:
    """Addresses under one domain. Without `base` a port is where the caller has reached the API."""

    domain: str = "localhost"
    base: str = ""
    """Where callers reach the server, `https://example.org:8443`, if something stands in front of it."""

    def view(self, link: PortLink, scheme: str, host: str) -> PortLinkView:
        """The address, for a caller who has reached the API at this scheme and host."""
        if self.base:
            scheme, _, host = self.base.partition("://")
        port = _port(host)
        name = f"{link.port}-{link.sandbox_id}.{self.domain}"
        query = f"?{TOKEN_QUERY}={link.token}" if link.token else ""
        headers = {"X-Atoll-Sandbox": link.sandbox_id, "X-Atoll-Port": str(link.port)}
        if link.token:
            headers["X-Atoll-Token"] = link.token
        return PortLinkView(
            url=f"{scheme}://{name}{port}/{query}",
            base_url=f"{scheme}://{host}",
            headers=headers,
            port=link.port,
            public=link.access.public,
            expires_at=link.expires_at,
        )


def _port(host: str) -> str:
    """`:7070`, or nothing if the host stands without one."""
    _, colon, port = host.rpartition(":")
    return f":{port}" if colon and port.isdigit() else ""
