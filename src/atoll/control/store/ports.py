"""Named queries about the ports of sandboxes. A port without a row has those of the sandbox, or the default rules."""

from __future__ import annotations

from sqlalchemy import Connection, delete, select

from atoll.control.store.prepared import adding
from atoll.control.store.schema import sandbox_ports
from atoll.model.port import ANY_PORT, PortAccess


def get(connection: Connection, sandbox_id: str, port: int) -> PortAccess:
    row = connection.execute(
        select(sandbox_ports)
        .where(sandbox_ports.c.sandbox_id == sandbox_id, sandbox_ports.c.port.in_((port, ANY_PORT)))
        .order_by(sandbox_ports.c.port.desc())
        .limit(1)
    ).one_or_none()
    if row is None:
        return PortAccess()
    return PortAccess(public=bool(row.public), mask_host=row.mask_host, generation=row.generation)


def has_any(connection: Connection, sandbox_id: str) -> bool:
    """Whether there are rules for all ports of a sandbox: they are made with it, or never."""
    mine = (sandbox_ports.c.sandbox_id == sandbox_id) & (sandbox_ports.c.port == ANY_PORT)
    return connection.execute(select(sandbox_ports.c.port).where(mine)).one_or_none() is not None


def change(
    connection: Connection,
    sandbox_id: str,
    port: int,
    *,
    public: bool | None,
    mask_host: str | None,
    revoke_links: bool,
) -> PortAccess:
    """Change some of the rules, in one transaction, so that two changes at once both count."""
    access = get(connection, sandbox_id, port).changed(public=public, mask_host=mask_host, revoke_links=revoke_links)
    connection.execute(
        delete(sandbox_ports).where(sandbox_ports.c.sandbox_id == sandbox_id, sandbox_ports.c.port == port)
    )
    add(connection, sandbox_id, port, access)
    return access


def add(connection: Connection, sandbox_id: str, port: int, access: PortAccess) -> None:
    """The rules of a port that has none."""
    row = {"public": int(access.public), "mask_host": access.mask_host, "generation": access.generation}
    _ADD.change(connection, {"sandbox_id": sandbox_id, "port": port, **row})


_ADD = adding(sandbox_ports)
