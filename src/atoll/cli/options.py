"""Options that several commands share, and how their text becomes values."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import click

Command = TypeVar("Command", bound=Callable[..., Any])


class Pairs(click.ParamType[tuple[str, str]]):
    """NAME=VALUE."""

    name = "NAME=VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        key, equals, text = str(value).partition("=")
        if not equals or not key:
            self.fail(f"{value!r} is not NAME=VALUE", param, ctx)
        return key, text


class Seconds(click.ParamType[float]):
    """A duration: 90, 90s, 15m, 2h, 1d."""

    name = "DURATION"
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}  # noqa: RUF012 - a constant of the class

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        text = str(value).strip().lower()
        unit = text[-1:]
        number = text[:-1] if unit in self.units else text
        try:
            seconds = float(number) * self.units.get(unit, 1)
        except ValueError:
            seconds = 0.0
        if not 0 < seconds < float("inf"):
            self.fail(f"{value!r} is not a duration; write 90, 90s, 15m, 2h or 1d", param, ctx)
        return seconds


def env_option(command: Command) -> Command:
    return click.option("--env", "-e", multiple=True, type=Pairs(), help="A variable; may be given again.")(command)


_QUOTA = {
    "sandboxes": (int, "Sandboxes at once."),
    "cpu": (float, "Cores of all sandboxes together."),
    "memory-bytes": (int, "Memory of all sandboxes together."),
    "disk-bytes": (int, "Disk of all sandboxes together."),
    "creates-per-minute": (int, "Creates in any minute."),
    "requests-per-second": (float, "Requests, of any kind."),
    "budget-s": (float, "Seconds that its sandboxes may run in a month."),
    "budget-money": (float, "What its sandboxes may cost in a month."),
}


def quota_options(command: Command) -> Command:
    """What a tenant or a key may have; the command gets it as one `quota`."""
    from atoll.wire.public import QuotaBody

    names = {name: name.replace("-", "_") for name in _QUOTA}

    @functools.wraps(command)
    def wrapped(*arguments: Any, **options: Any) -> Any:
        values = {field: options.pop(field) for field in names.values()}
        return command(*arguments, quota=QuotaBody(**values), **options)

    for name, (kind, text) in reversed(_QUOTA.items()):
        click.option(f"--{name}", names[name], type=kind, help=text)(wrapped)
    return cast(Command, wrapped)


def creation_options(command: Command) -> Command:
    """What a sandbox can be created with."""
    options = [
        click.option("--template", "-t", default="code", show_default=True, help="What it starts from."),
        click.option("--cpu", type=float, help="Cores; may be a fraction."),
        click.option("--memory", metavar="SIZE", help="Such as 512MiB or 2GiB."),
        click.option("--disk", metavar="SIZE", help="Such as 10GiB."),
    ]
    for option in reversed(options):
        command = option(command)
    return command
