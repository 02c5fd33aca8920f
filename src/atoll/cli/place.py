"""ID:PATH, as the command line names a file or folder of a sandbox, and the sandbox behind it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import click

from atoll.cli.find import find
from atoll.client import Sandbox


@dataclass(frozen=True)
class Place:
    """A file or folder; without a sandbox it is on this machine."""

    sandbox: str
    path: str


def parse_place(text: str) -> Place:
    """`ID:PATH`, or a path of this machine. A colon after a slash is part of a path, as in `./a:b`."""
    head, colon, rest = text.partition(":")
    if not colon or "/" in head or not head:
        return Place("", text)
    return Place(head, rest or ".")


class InsidePlace(click.ParamType[Place]):
    """A place in a sandbox; a path that is not absolute starts at the user's home."""

    name = "ID:PATH"

    def convert(self, value: str | Place, param: click.Parameter | None, ctx: click.Context | None) -> Place:
        place = value if isinstance(value, Place) else parse_place(value)
        if not place.sandbox:
            self.fail(f"{value!r} is not ID:PATH", param, ctx)
        return place


place_argument = click.argument("place", metavar="PLACE", type=InsidePlace())
places_argument = click.argument("places", metavar="PLACE...", type=InsidePlace(), nargs=-1, required=True)
user_option = click.option("--user", "-u", help="The user whose rights are used: a name or a number.")


@contextmanager
def opened(place: Place) -> Iterator[Sandbox]:
    """The sandbox of a place."""
    found = find(place.sandbox)
    try:
        yield found
    finally:
        found.close()


def beside(place: Place, text: str) -> str:
    """A second path in the same sandbox, written with its ID or without."""
    other = parse_place(text)
    if other.sandbox not in ("", place.sandbox):
        raise click.UsageError(f"both are in one sandbox; `atoll sandbox cp` copies out of {place.sandbox!r} and in")
    return other.path
