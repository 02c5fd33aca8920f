"""Ports and their rules, as values."""

from __future__ import annotations

import pytest

from atoll.model.errors import InvalidArgument
from atoll.model.port import PortAccess, port_parse


def test_a_port_is_private_and_masked_until_someone_says_otherwise() -> None:
    access = PortAccess()
    assert not access.public
    assert access.host_for(8000) == "localhost:8000"


def test_a_change_leaves_the_rest_alone() -> None:
    access = PortAccess().changed(public=True, mask_host=None, revoke_links=False)
    access = access.changed(public=None, mask_host="", revoke_links=True)
    assert access == PortAccess(public=True, mask_host="", generation=1)


@pytest.mark.parametrize("mask", ["a b", "x\r\ny", "http://x", "x:port", "x" * 300, "x:{port}y"])
def test_a_mask_is_a_host(mask: str) -> None:
    with pytest.raises(InvalidArgument):
        PortAccess().changed(public=None, mask_host=mask, revoke_links=False)


@pytest.mark.parametrize("text", ["", "0", "65536", "-1", "1.5", "x", "٣", "000000080"])
def test_what_is_no_port(text: str) -> None:
    with pytest.raises(InvalidArgument):
        port_parse(text)
