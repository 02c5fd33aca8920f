"""What a sentry is told about its link."""

from __future__ import annotations

import base64
from typing import Any, cast

import pytest

from atoll.node.runtime import netstack

MAC = bytes([2, 7, 10, 1, 2, 3])


class Link:
    def __init__(self, segments: int) -> None:
        self._segments = segments

    def getsockopt(self, level: int, option: int) -> int:
        return self._segments

    def getsockname(self) -> tuple[str, int, int, int, bytes]:
        return ("eth0", 3, 0, 1, MAC)


@pytest.mark.parametrize("segments", [0, 1])
def test_it_is_what_runsc_would_have_found(segments: int) -> None:
    told: dict[str, Any] = netstack.arguments(cast(Any, Link(segments)))
    (link,) = told["FDBasedLinks"]
    assert told["IsRestore"] is True
    assert (link["Name"], link["MTU"], link["NumChannels"]) == ("eth0", 1500, 1)
    assert link["Addresses"] == [{"Address": "10.0.0.2", "PrefixLen": 30}]
    assert [(route["Destination"]["IP"], route["Gateway"]) for route in link["Routes"]] == [
        ("0.0.0.0", "10.0.0.1"),
        ("10.0.0.0", ""),
    ]
    assert base64.b64decode(link["Routes"][1]["Destination"]["Mask"]) == b"\xff\xff\xff\xfc"
    assert base64.b64decode(link["LinkAddress"]) == MAC
    assert link["GVisorGSOEnabled"] is not bool(segments)
