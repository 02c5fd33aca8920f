"""Settings: one typed table, filled from flags, then `ATOLL_*` variables, then a TOML file, then the defaults."""

from __future__ import annotations

import dataclasses
import ipaddress
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from atoll.model import limits
from atoll.model.errors import InvalidArgument

CONFIG_DEFAULT = Path("/etc/atoll/atoll.toml")

_LISTEN = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[^:\[\]]+)):(?P<port>\d{1,5})")


def _setting(default: Any, help: str) -> Any:
    return field(default=default, metadata={"help": help})


# ruff: noqa: RUF009 - `_setting` is `field` with a description
@dataclass(frozen=True, slots=True)
class Settings:
    """What an operator chooses. Each field is a flag (`--log-level`), a variable (`ATOLL_LOG_LEVEL`) and a TOML key."""

    listen: str = _setting("127.0.0.1:7070", "Address and port of the API; port 0 takes a free one.")
    data: Path = _setting(Path("/var/lib/atoll"), "Directory of all that this server keeps.")
    cache: Path = _setting(
        Path("/var/cache/atoll"), "Directory of what set-up has built; servers of a machine share it."
    )
    runsc: Path | None = _setting(None, "The runsc to run, instead of the one that set-up has found or built.")
    runtime: str = _setting("runsc", "The driver that isolates sandboxes.")
    pool_size_bytes: int = _setting(0, "Size of the disk pool if one has to be made; 0 takes most of the free space.")
    memory_overcommit: float = _setting(4.0, "How many times the machine's memory may be promised to sandboxes.")
    metrics: Literal["auto", "open", "key"] = _setting(
        "auto", "Whether /metrics needs a key; auto: not if the server listens on this machine only."
    )
    log_level: Literal["debug", "info", "warning", "error"] = _setting("info", "The least severe entries to log.")
    log_format: Literal["auto", "text", "json"] = _setting("auto", "How to log; auto: text on a terminal, else JSON.")
    stop_s: float = _setting(5.0, "How long a stop waits for requests that are under way.")

    def checked(self) -> Settings:
        parse_listen(self.listen)
        if not 0 < self.memory_overcommit <= 100:
            raise _wrong("memory_overcommit", "must be above 0 and at most 100")
        if not 0 <= self.pool_size_bytes <= limits.DISK_BYTES_MAX:
            raise _wrong("pool_size_bytes", f"must be between 0 and {limits.DISK_BYTES_MAX}")
        if not 0 <= self.stop_s <= 3600:
            raise _wrong("stop_s", "must be between 0 and 3600")
        return dataclasses.replace(self, data=self.data.absolute(), cache=self.cache.absolute())

    @property
    def metrics_open(self) -> bool:
        return self.metrics == "open" or (self.metrics == "auto" and is_loopback(parse_listen(self.listen)[0]))


def load(flags: Mapping[str, Any], environment: Mapping[str, str], config: Path | None = None) -> Settings:
    """Settings from all places; a flag that is None was not given."""
    values = _from_file(config or Path(environment.get("ATOLL_CONFIG") or CONFIG_DEFAULT), required=config is not None)
    names = [item.name for item in dataclasses.fields(Settings)]
    values |= {name: environment[variable(name)] for name in names if environment.get(variable(name))}
    values |= {name: value for name, value in flags.items() if value is not None}
    unknown = set(values) - set(names)
    if unknown:
        raise _wrong(sorted(unknown)[0], "is not a setting")
    try:
        settings = msgspec.convert(values, Settings, strict=False, dec_hook=_decode_path)
    except msgspec.ValidationError as error:
        raise InvalidArgument(f"the settings are wrong: {error}", code="invalid_settings") from None
    return settings.checked()


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return f"ATOLL_{name.upper()}"


def table() -> list[tuple[str, str, str, str]]:
    """Name, variable, default and description of every setting, for the documentation."""
    return [
        (item.name, variable(item.name), "" if item.default is None else str(item.default), item.metadata["help"])
        for item in dataclasses.fields(Settings)
    ]


def parse_listen(listen: str) -> tuple[str, int]:
    """Host and port; an IPv6 address stands in brackets."""
    match = _LISTEN.fullmatch(listen)
    if match is None or int(match["port"]) > 65535:
        raise _wrong("listen", f"cannot be {listen[:80]!r}; write it as 127.0.0.1:7070 or [::1]:7070")
    return match["v6"] or match["host"], int(match["port"])


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _from_file(path: Path, *, required: bool) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        if required:
            raise InvalidArgument(f"there is no file {path}", code="invalid_settings") from None
        return {}
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"{path} cannot be read: {error}", code="invalid_settings") from None


def _decode_path(kind: type, value: Any) -> Any:
    if kind is Path and isinstance(value, str | Path):
        return Path(value)
    raise NotImplementedError(kind)


def _wrong(name: str, why: str) -> InvalidArgument:
    return InvalidArgument(f"{name} {why}", code="invalid_settings")
