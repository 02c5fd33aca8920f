"""What the commands print: aligned tables for people, JSON for programs, one line and a hint for errors."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import click
import msgspec

from atoll.model.errors import AtollError
from atoll.wire.public import QuotaView

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


def shows_colour(stream: Any = None) -> bool:
    """Colour is for a terminal whose user did not refuse it (NO_COLOR)."""
    stream = stream or sys.stdout
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and bool(stream.isatty())


def paint(text: str, colour: str, stream: Any = None) -> str:
    return click.style(text, fg=colour) if shows_colour(stream) else text


def printable(text: str) -> str:
    """Text from elsewhere, made harmless: no control sequence reaches the terminal."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)


def complain(error: AtollError) -> None:
    """An error as one line, its hint as a second."""
    red = paint("error:", "red", sys.stderr)
    click.echo(f"{red} {printable(error.message)} ({printable(error.code)})", err=True)
    if error.hint:
        click.echo(f"  {printable(error.hint)}", err=True)
    if error.code == "internal" and error.detail:
        click.echo(f"  {printable(error.detail[:500])}", err=True)


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=True, sort_keys=False))


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines with aligned columns."""
    cells = [list(headings), *([printable(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headings))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    for line in table(headings, rows):
        click.echo(line)


def amount(size_bytes: int) -> str:
    """Bytes as people say them: 512MiB, 1.5GiB."""
    value = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.4g}{unit}"
        value /= 1024
    return f"{value:.4g}TiB"


def duration(seconds: float) -> str:
    """A time span in its largest two units: 45s, 3m20s, 2h05m, 3d04h. The past has a minus."""
    sign, whole = ("-", int(-seconds)) if seconds < 0 else ("", int(seconds))
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if whole < 60:
        return f"{sign}{whole}s"
    if whole < 3600:
        return f"{sign}{minutes}m{whole % 60:02d}s"
    if whole < 86400:
        return f"{sign}{hours}h{minutes % 60:02d}m"
    return f"{sign}{days}d{hours % 24:02d}h"


def quota_words(quota: QuotaView) -> str:
    """What somebody may have, without what has no limit."""
    given = {name: value for name, value in msgspec.structs.asdict(quota).items() if value is not None}
    words = {name: amount(value) if name.endswith("_bytes") else f"{value:g}" for name, value in given.items()}
    return " ".join(f"{name.removesuffix('_bytes')}={text}" for name, text in words.items()) or "none"


def since(moment: datetime | None, now: datetime) -> str:
    """How long ago; a clock that differs a little from the server's makes no time before it began."""
    return "-" if moment is None else duration(max(0.0, (now - moment).total_seconds()))


def until(moment: datetime | None, now: datetime) -> str:
    return "-" if moment is None else duration((moment - now).total_seconds())
