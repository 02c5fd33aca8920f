"""Addresses of ports, as seen by a caller who has reached the API somewhere."""

from __future__ import annotations

from atoll.api.ingress.addresses import Addresses
from atoll.control.ingress import PortLink
from atoll.model.port import PortAccess

LINK = PortLink("sbx", 8000, PortAccess(), token="9.sig")


def test_on_one_machine() -> None:
    view = Addresses().view(LINK, "http", "127.0.0.1:7070")
    assert view.url == "http://8000-sbx.localhost:7070/?atoll_token=9.sig"
    assert view.base_url == "http://127.0.0.1:7070"
    assert view.headers == {"X-Atoll-Sandbox": "sbx", "X-Atoll-Port": "8000", "X-Atoll-Token": "9.sig"}


def test_under_a_domain_behind_something() -> None:
    addresses = Addresses("boxes.example.org", "https://atoll.example.org")
    view = addresses.view(PortLink("sbx", 80, PortAccess(public=True)), "http", "10.0.0.1:7070")
    assert view.url == "https://80-sbx.boxes.example.org/"
    assert view.base_url == "https://atoll.example.org"
    assert view.public


def test_an_address_with_colons_has_a_port() -> None:
    assert Addresses().view(LINK, "http", "[::1]:7070").url.startswith("http://8000-sbx.localhost:7070/")
    assert Addresses().view(LINK, "http", "[::1]").url.startswith("http://8000-sbx.localhost/")
