"""Options that several commands share, and how their text becomes values."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
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


class Rights(click.ParamType[int]):
    """The rights of a file, in octal: 644, 0755."""

    name = "MODE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value)
        if not 1 <= len(text) <= 5 or not set(text) <= set("01234567"):
            self.fail(f"{value!r} is not an octal number like 644", param, ctx)
        return int(text, 8)


class Inside(click.Command):
    """[OPTIONS] ID [OPTIONS] [COMMAND...]: options stand before or after ID; what follows COMMAND is the command's."""

    ignore_unknown_options = True
    allow_interspersed_args = False

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        where = self._first_word(ctx, args)
        if where is not None and args[where + 1 : where + 2] != ["--"]:
            identity, others = args[where], args[:where] + args[where + 1 :]
            word = self._first_word(ctx, others)
            args = [*others[:word], identity, *others[word:]] if word is not None else [*others, identity]
        return super().parse_args(ctx, args)

    def _first_word(self, ctx: click.Context, args: list[str]) -> int | None:
        """Where the options end, as the parser sees it."""
        found, _, _ = self.make_parser(ctx).parse_args(list(args))
        if not isinstance(found.get("identity"), str):
            return None
        command = found.get("command")
        return len(args) - 1 - (len(command) if isinstance(command, tuple) else 0)


class Moment(click.ParamType[datetime]):
    """A moment in UTC, or how long ago: 2026-05-31, 2026-05-31T12:00:00, 90m, 2h, 1d."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        text = str(value).strip()
        try:
            if text[-1:].lower() in Seconds.units:
                return datetime.now(UTC) - timedelta(seconds=Seconds().convert(text, param, ctx))
            moment = datetime.fromisoformat(text)
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is not a moment; write 2026-05-31, 2026-05-31T12:00:00, or 2h for so long ago")
        return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def env_option(command: Command) -> Command:
    return click.option("--env", "-e", multiple=True, type=Pairs(), help="A variable; may be given again.")(command)


_QUOTA = {
    "sandboxes": (int, "Sandboxes at once."),
    "cpu": (float, "Cores of all sandboxes together."),
    "memory-bytes": (int, "Memory of all sandboxes together."),
    "disk-bytes": (int, "Disk of all sandboxes together."),
    "creates-per-minute": (int, "Creates in any minute."),
    "requests-per-second": (float, "Requests, of any kind."),
}

_BUDGET = {
    "budget-s": (float, "Seconds that its sandboxes may run in a month."),
    "budget-money": (float, "What its sandboxes may cost in a month."),
}


def tenant_quota_options(command: Command) -> Command:
    """What a tenant may have; the command gets it as one `quota`."""
    return _quota_options(command, {**_QUOTA, **_BUDGET})


def key_quota_options(command: Command) -> Command:
    """The same for a key, which has no budget."""
    return _quota_options(command, _QUOTA)


def _quota_options(command: Command, quotas: dict[str, tuple[type, str]]) -> Command:
    from atoll.wire.public import QuotaBody

    names = {name: name.replace("-", "_") for name in quotas}

    @functools.wraps(command)
    def wrapped(*arguments: Any, **options: Any) -> Any:
        values = {field: options.pop(field) for field in names.values()}
        return command(*arguments, quota=QuotaBody(**values), **options)

    for name, (kind, text) in reversed(quotas.items()):
        click.option(f"--{name}", names[name], type=kind, help=text)(wrapped)
    return cast(Command, wrapped)


class PolicyFile(click.ParamType[dict[str, Any]]):
    """The fields of a policy, from a file of this machine in JSON."""

    name = "FILE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, Any]:
        import msgspec

        if isinstance(value, dict):
            return value
        try:
            return msgspec.json.decode(Path(value).read_bytes(), type=dict[str, Any])
        except OSError as error:
            self.fail(f"{value}: {error.strerror}", param, ctx)
        except msgspec.MsgspecError as error:
            self.fail(f"{value} is not a policy in JSON: {error}", param, ctx)


def network_options(command: Command) -> Command:
    """What a new sandbox may reach, as one `policy` or None, and which secrets it gets."""

    @functools.wraps(command)
    def wrapped(*arguments: Any, allow: tuple[str, ...], policy: dict[str, Any] | None, **options: Any) -> Any:
        if allow:
            policy = {**(policy or {}), "allow": list(allow)}
        return command(*arguments, policy=policy, **options)

    options = [
        click.option("--allow", multiple=True, metavar="RULE", help="A host that it may reach; again for more."),
        click.option("--policy", type=PolicyFile(), help="A policy in JSON; --allow takes the place of its own."),
        click.option("--secret", "secrets", multiple=True, metavar="NAME", help="A secret that it gets."),
    ]
    for option in reversed(options):
        option(wrapped)
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
