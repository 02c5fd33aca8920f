"""Ports as they are written on the command line."""

from __future__ import annotations

import click
import pytest

from atoll.cli.forward import ports_parse
from atoll.model.errors import InvalidArgument


@pytest.mark.parametrize(
    ("text", "ports"), [("5432", (5432, 5432)), ("5432:15432", (5432, 15432)), ("5432:0", (5432, 0))]
)
def test_a_port_and_where_it_goes(text: str, ports: tuple[int, int]) -> None:
    assert ports_parse(text) == ports


@pytest.mark.parametrize("text", ["", "x", "1:2:3", ":1", "1:", "0", "70000", "80:70000"])
def test_what_is_no_port_is_refused(text: str) -> None:
    with pytest.raises((click.BadParameter, InvalidArgument)):
        ports_parse(text)
