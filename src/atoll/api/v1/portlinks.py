"""/v1/sandboxes/{sandbox}/ports/{port}: who may reach a port, signed addresses for it, and raw TCP to it."""

from __future__ import annotations

from atoll.api.connection import EXTENSION, RawConnection
from atoll.api.edge import exchange_of
from atoll.api.endpoint import STREAMED, Call, Endpoint, Nothing, Streamed
from atoll.api.ingress import tunnel as bytes_tunnel
from atoll.api.ingress.addresses import Addresses
from atoll.api.ingress.routes import TUNNEL_PROTOCOL
from atoll.model.errors import Conflict, Forbidden, GuestFailed, InvalidArgument, LimitExceeded, NotFound
from atoll.model.port import PortAccess, port_parse
from atoll.wire.public import PortAccessChange, PortAccessView, PortLinkCreate, PortLinkView

ONE = "/v1/sandboxes/{sandbox}/ports/{port}"


def _view(port: int, access: PortAccess) -> PortAccessView:
    return PortAccessView(port=port, public=access.public, mask_host=access.mask_host)


async def access(call: Call[Nothing, Nothing]) -> PortAccessView:
    port = port_parse(call.path["port"])
    return _view(port, await call.control.ingress.access(call.principal, call.path["sandbox"], port))


async def change_access(call: Call[PortAccessChange, Nothing]) -> PortAccessView:
    port = port_parse(call.path["port"])
    changed = await call.control.ingress.access_change(
        call.principal,
        call.path["sandbox"],
        port,
        public=call.body.public,
        mask_host=call.body.mask_host,
        revoke_links=call.body.revoke_links,
    )
    return _view(port, changed)


async def tunnel(call: Call[Nothing, Nothing]) -> Streamed:
    """The connection becomes one to the port: `Upgrade: atoll-tcp`, then bytes as they are."""
    port = port_parse(call.path["port"])
    ingress = call.control.ingress
    admission = await ingress.admit_owner(call.principal, call.path["sandbox"], port)
    asked = call.header(b"upgrade").lower().encode("latin-1")
    take_over = call.scope.get("extensions", {}).get(EXTENSION)
    if asked != TUNNEL_PROTOCOL or take_over is None:
        raise InvalidArgument(
            "a tunnel needs an upgrade of the connection",
            code="upgrade_required",
            hint="Send `Connection: Upgrade` and `Upgrade: atoll-tcp`, or use `atoll forward`.",
        )
    with ingress.visit(admission) as visit:
        visit.protocol = "tcp"
        sock = await ingress.dial(admission.knock.sandbox_id, port)
        try:
            raw = take_over()
            assert isinstance(raw, RawConnection)
            exchange_of(call.scope).status = 101
            try:
                head = b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: atoll-tcp\r\n\r\n"
                await raw.send(head)
                await bytes_tunnel.join(raw, sock, visit, ingress)
            finally:
                bytes_tunnel.hang_up(raw, visit)
        finally:
            sock.close()
    return STREAMED


def endpoints(addresses: Addresses) -> tuple[Endpoint[PortLinkCreate, Nothing] | Endpoint[Nothing, Nothing], ...]:
    """The operations, with addresses under the server's domain."""

    async def link(call: Call[PortLinkCreate, Nothing]) -> PortLinkView:
        port = port_parse(call.path["port"])
        made = await call.control.ingress.link(call.principal, call.path["sandbox"], port, call.body.expires_s)
        return addresses.view(made, call.scope.get("scheme", "http"), call.header(b"host"))

    return (
        Endpoint(
            "POST",
            ONE + "/link",
            "Make an address that opens a port without a key",
            link,
            body=PortLinkCreate,
            answer=PortLinkView,
            errors=(InvalidArgument, NotFound),
        ),
    )


ENDPOINTS = (
    Endpoint(
        "GET",
        ONE + "/access",
        "Show who may reach a port",
        access,
        answer=PortAccessView,
        errors=(InvalidArgument, NotFound),
    ),
    Endpoint(
        "PATCH",
        ONE + "/access",
        "Change who may reach a port",
        change_access,
        body=PortAccessChange,
        answer=PortAccessView,
        errors=(InvalidArgument, NotFound),
    ),
    Endpoint(
        "GET",
        ONE + "/tunnel",
        "Turn the connection into one to the port, by an upgrade to `atoll-tcp`",
        tunnel,
        gives={"application/octet-stream": None},
        needs="write",
        errors=(InvalidArgument, NotFound, Conflict, Forbidden, LimitExceeded, GuestFailed),
    ),
)
