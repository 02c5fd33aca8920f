"""What is said of a port that does not answer."""

from __future__ import annotations

import pytest

from atoll.api.compat.e2b import proxywords
from atoll.model.errors import AtollError, Conflict, Forbidden, GuestFailed, LimitExceeded, NotFound, Unauthenticated


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (NotFound("x", code="sandbox_not_found"), 502, "was not found"),
        (Conflict("x", code="not_running"), 502, "was not found"),
        (GuestFailed("x", code="port_closed"), 502, "port is not open"),
        (Unauthenticated("x", code="port_private"), 403, "e2b-traffic-access-token"),
        (Forbidden("x", code="port_link_refused"), 403, "e2b-traffic-access-token"),
        (Forbidden("port 999 belongs to the sandbox itself", code="port_reserved"), 403, "port 999"),
        (LimitExceeded("too many"), 429, "too many"),
    ],
)
def test_a_port_is_refused_as_their_proxy_does(error: AtollError, status: int, words: str) -> None:
    refusal = proxywords.of_port(error, "sb1", 8000)
    assert (refusal.status, refusal.body["code"], refusal.body["sandboxId"]) == (status, status, "sb1")
    assert words in refusal.body["message"]
