"""What E2B's proxy says of a sandbox or a port that does not answer; clients look for these words; pure."""

from __future__ import annotations

from typing import Any, Final

from atoll.api.ingress.routes import Refusal
from atoll.model.errors import AtollError, Unauthenticated

GONE: Final = frozenset({"sandbox_not_found", "not_running"})
CLOSED: Final = frozenset({"guest_unreachable", "port_closed"})
TRAFFIC_HEADER: Final = b"e2b-traffic-access-token"


def gone(sandbox_id: str) -> dict[str, Any]:
    """Of a sandbox that does not run, for whatever reason."""
    return {"sandboxId": sandbox_id, "message": "The sandbox was not found", "code": 502}


def port_closed(sandbox_id: str, port: int) -> dict[str, Any]:
    message = "The sandbox is running but port is not open"
    return {"sandboxId": sandbox_id, "message": message, "port": port, "code": 502}


def of_port(error: AtollError, sandbox_id: str, port: int) -> Refusal:
    """How a caller is refused who wants to reach a port."""
    if error.code in GONE:
        return Refusal(502, gone(sandbox_id))
    if error.code in CLOSED:
        return Refusal(502, port_closed(sandbox_id, port))
    if isinstance(error, Unauthenticated) or error.code == "port_link_refused":
        message = f"the header '{TRAFFIC_HEADER.decode('ascii')}' is missing or its token is wrong"
        return Refusal(403, {"sandboxId": sandbox_id, "message": message, "code": 403})
    return Refusal(error.http_status, {"sandboxId": sandbox_id, "message": error.message, "code": error.http_status})
