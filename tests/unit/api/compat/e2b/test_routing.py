"""Which of E2B's servers a request is for."""

from __future__ import annotations

import pytest

from atoll.api.compat.e2b import routing
from atoll.api.compat.e2b.routing import Plane, Route
from atoll.api.facade import RequestHead


def route(host: str = "127.0.0.1", path: str = "/", **headers: str) -> Route | None:
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return routing.route(RequestHead(host, path, pairs), "box.example")


@pytest.mark.parametrize("path", ["/sandboxes", "/v2/sandboxes/x/connect", "/v3/templates", "/volumes", "/secrets/a"])
def test_the_control_plane_is_known_by_its_paths(path: str) -> None:
    assert route(path=path) == Route(Plane.CONTROL)


@pytest.mark.parametrize("path", ["/v1/sandboxes", "/health", "/metrics", "/openapi.json", "/", "/sandboxesx"])
def test_our_own_paths_stay_ours(path: str) -> None:
    assert route(path=path) is None


def test_under_the_domain_the_api_has_a_name() -> None:
    assert route("api.box.example", "/health") == Route(Plane.CONTROL)


def test_headers_and_names_lead_to_a_sandbox() -> None:
    assert route(path="/health", e2b_sandbox_id="sb1") == Route(Plane.AGENT, "sb1")
    assert route(path="/x", e2b_sandbox_id="sb1", e2b_sandbox_port="49999") == Route(Plane.INTERPRETER, "sb1")
    assert route("49983-sb1.box.example", "/files") == Route(Plane.AGENT, "sb1")
    assert route("49999-sb1.box.example", "/execute") == Route(Plane.INTERPRETER, "sb1")


def test_other_ports_are_not_answered_here() -> None:
    assert route("8000-sb1.box.example", "/sandboxes") is None
    assert route(path="/sandboxes", e2b_sandbox_id="sb1", e2b_sandbox_port="8000") is None


def test_a_signed_address_names_no_sandbox() -> None:
    assert route(path="/files") == Route(Plane.AGENT)


def test_an_address_may_map_templates() -> None:
    found = route(path="/e2b/desktop=code,mine=base/v2/sandboxes")
    assert found == Route(Plane.CONTROL, templates={"desktop": "code", "mine": "base"})
    assert routing.without_map("/e2b/a=b/sandboxes/x") == "/sandboxes/x"


def test_ports_are_named_in_headers_with_a_token_of_their_own() -> None:
    headers = [(b"e2b-sandbox-id", b"sb1"), (b"e2b-sandbox-port", b"8000")]
    target = routing.port_pattern("127.0.0.1", headers)
    assert target is not None
    assert (target.sandbox_id, target.port, target.token_header) == ("sb1", 8000, b"e2b-traffic-access-token")
    assert routing.port_pattern("127.0.0.1", [(b"e2b-sandbox-id", b"sb1"), (b"e2b-sandbox-port", b"49983")]) is None
    pattern = routing.host_pattern("box.example")
    plain = pattern("8000-sb1.box.example", [])
    assert plain is not None
    assert (plain.token_header, plain.refuses_its_own) == (b"x-atoll-token", True)
    assert pattern("www.box.example", []) is None
    found = pattern("8000-sb1.box.example", [(b"e2b-traffic-access-token", b"t")])
    assert found is not None
    assert found.port == 8000
