"""Addresses of ports: who may reach a server inside a sandbox, and where it is from outside."""

from __future__ import annotations

from atoll.client._async.transport import AsyncTransport
from atoll.model import limits
from atoll.wire.public import PortAccessChange, PortAccessView, PortLinkCreate, PortLinkView


class AsyncPortLinks:
    """The way to servers inside one sandbox. A port is private until `set_access` makes it public."""

    def __init__(self, transport: AsyncTransport, path: str) -> None:
        """For the sandbox, which has one."""
        self._transport = transport
        self._path = path

    async def url(self, port: int, *, expires_s: float = limits.PORT_LINK_S_DEFAULT) -> str:
        """An address that opens a port in a browser or with curl; that of a private port is signed and expires.

        Example:
            print(await sb.ports.url(8000))
        """
        return (await self.link(port, expires_s=expires_s)).url

    async def link(self, port: int, *, expires_s: float = limits.PORT_LINK_S_DEFAULT) -> PortLinkView:
        """The same as `url`, and what a program needs where no DNS knows the name: `base_url` and `headers`.

        Example:
            link = await sb.ports.link(8000)
            page = httpx2.get(link.base_url + "/", headers=link.headers)
        """
        body = PortLinkCreate(expires_s=expires_s)
        return await self._transport.call("POST", f"{self._path}/ports/{port}/link", PortLinkView, body)

    async def access(self, port: int) -> PortAccessView:
        """Who may reach a port, and which Host the server behind it gets.

        Example:
            print((await sb.ports.access(8000)).public)
        """
        return await self._transport.call("GET", f"{self._path}/ports/{port}/access", PortAccessView)

    async def set_access(
        self,
        port: int,
        *,
        public: bool | None = None,
        mask_host: str | None = None,
        revoke_links: bool = False,
    ) -> PortAccessView:
        """Make a port public or private; what is not given stays. `revoke_links` ends all addresses given before.

        It holds at once: connections of callers who would not be let in any more are cut.
        A server inside gets `localhost:<port>` as its Host unless `mask_host` says another, or "" for the caller's own.

        Example:
            await sb.ports.set_access(8000, public=True)
        """
        body = PortAccessChange(public=public, mask_host=mask_host, revoke_links=revoke_links)
        return await self._transport.call("PATCH", f"{self._path}/ports/{port}/access", PortAccessView, body)
