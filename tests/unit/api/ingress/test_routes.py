"""Host names and headers that name a port, and those that do not."""

from __future__ import annotations

import pytest

from atoll.api.ingress.routes import Headers, Routes, Target, host_of
from atoll.model.errors import InvalidArgument

ID = "sb" + "0" * 36
ROUTES = Routes.native("example.org")


def head(host: str, **more: str) -> list[tuple[bytes, bytes]]:
    return [
        (b"host", host.encode()),
        *((name.replace("_", "-").encode(), value.encode()) for name, value in more.items()),
    ]


@pytest.mark.parametrize(
    "host",
    [f"8000-{ID}.example.org", f"8000-{ID}.example.org:7070", f"8000-{ID}.EXAMPLE.org", f"8000-{ID}.example.org."],
)
def test_a_name_leads_to_its_port(host: str) -> None:
    assert ROUTES.find(head(host)) == Target(ID, 8000)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "example.org",
        "127.0.0.1:7070",
        "[::1]:7070",
        f"{ID}.example.org",
        f"8000-{ID}.example.com",
        f"8000-{ID}.example.org.evil.com",
        f"x.8000-{ID}.example.org",
        f"8000-{ID}xexample.org",
        f"-8000-{ID}.example.org",
    ],
)
def test_other_names_are_for_the_api(host: str) -> None:
    assert ROUTES.find(head(host)) is None


def test_headers_lead_to_a_port_under_any_name() -> None:
    asked = head("127.0.0.1", x_atoll_sandbox=ID, x_atoll_port="8000")
    assert ROUTES.find(asked) == Target(ID, 8000)


@pytest.mark.parametrize(
    "more",
    [{"x_atoll_sandbox": ID}, {"x_atoll_port": "80"}, {"x_atoll_sandbox": ID, "x_atoll_port": "0"}],
)
def test_half_a_target_is_refused(more: dict[str, str]) -> None:
    with pytest.raises(InvalidArgument):
        ROUTES.find(head("127.0.0.1", **more))
    assert ROUTES.claims(head("127.0.0.1", **more))


def test_upgrades_of_the_api_itself_are_not_claimed() -> None:
    assert not ROUTES.claims(head("example.org", upgrade="websocket"))
    assert ROUTES.claims(head(f"8000-{ID}.example.org", upgrade="websocket"))
    assert ROUTES.claims(head("example.org", upgrade="Atoll-TCP"))


def test_another_pattern_can_stand_beside_ours() -> None:
    def other(host: str, headers: Headers) -> Target | None:
        return Target(ID, 1, token_header=b"x-their-token") if host == "their.example" else None

    routes = Routes.native("localhost", other)
    found = routes.find(head("their.example"))
    assert found is not None
    assert found.token_header == b"x-their-token"
    assert routes.find(head("localhost")) is None


def test_the_host_is_read_without_its_port() -> None:
    assert host_of(head("[::1]")) == "[::1]"
    assert host_of(head("[::1]:80")) == "[::1]"
    assert host_of(head("A.b:")) == "a.b"
