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
from atoll.model.origin import parse_proxies

CONFIG_DEFAULT = Path("/etc/atoll/atoll.toml")

_DOMAIN = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*")
_ORIGIN = re.compile(r"https?://[a-z0-9.-]+(:\d{1,5})?")
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
    warm_size: int = _setting(8, "How many sandboxes of each template may wait for an owner; 0 switches the pool off.")
    database: str = _setting("", "Address of a PostgreSQL database; empty: SQLite in the data directory.")
    usage_interval_s: float = _setting(60.0, "How often what sandboxes use is counted.")
    price_wall_s: float = _setting(0.0, "Price of a second that a sandbox runs.")
    price_cpu_s: float = _setting(0.0, "Price of a second of CPU.")
    price_memory_gib_s: float = _setting(0.0, "Price of a GiB of memory for a second.")
    price_disk_gib_s: float = _setting(0.0, "Price of a GiB of disk for a second.")
    price_egress_gib: float = _setting(0.0, "Price of a GiB sent to the network.")
    currency: str = _setting("", "What prices are in, as it is shown: EUR.")
    events_keep_days: float = _setting(90.0, "How long the audit log is kept; 0: for ever.")
    events_file: Path | None = _setting(None, "A file that the audit log is copied to, one JSON object a line.")
    webhook_private: bool = _setting(False, "Whether webhooks may be sent to private addresses.")
    otel_url: str = _setting("", "Where traces go (OTLP over HTTP): http://collector:4318; empty: nowhere.")
    metrics: Literal["auto", "open", "key"] = _setting(
        "auto", "Whether /metrics needs a key; auto: not if the server listens on this machine only."
    )
    domain: str = _setting("localhost", "Ports of sandboxes are at <port>-<id>.<domain>.")
    public_url: str = _setting("", "Where callers reach the server, if something stands in front: https://example.org.")
    trusted_proxies: str = _setting(
        "", "Proxies in front whose X-Forwarded-For says where a request came from: 127.0.0.1, 10.0.0.0/8, ..."
    )
    tls: bool = _setting(False, "Serve with TLS, by a certificate of the server's own CA unless tls_cert names one.")
    tls_cert: Path | None = _setting(None, "Certificate chain (PEM) for the domain and *.<domain>; switches TLS on.")
    tls_key: Path | None = _setting(None, "Private key (PEM) of tls_cert.")
    egress_dns: str = _setting("", "Servers that know names, as address or address:port; without, those of this host.")
    egress_open: str = _setting("", "Networks that policies may allow although they are private: 10.1.0.0/16, ...")
    egress_close: str = _setting("", "Networks that no policy may allow, such as this host's address behind NAT.")
    egress_lists: str = _setting("", "Lists for policies: packages=a.example,*.b.example; git=c.example:22")
    egress_ca: Path | None = _setting(None, "More certificates (PEM) that the proxy trusts where it looks inside TLS.")
    secrets_key: str = _setting("", "Key that encrypts secrets (base64, 32 bytes); without, in <data>/secrets.key.")
    snapshot_trust: str = _setting(
        "", "Servers whose snapshots may be imported with their memory: what is in their <data>/export.pub, ..."
    )
    log_level: Literal["debug", "info", "warning", "error"] = _setting("info", "The least severe entries to log.")
    log_format: Literal["auto", "text", "json"] = _setting("auto", "How to log; auto: text on a terminal, else JSON.")
    stop_s: float = _setting(5.0, "How long a stop waits for requests that are under way.")

    def checked(self) -> Settings:
        parse_listen(self.listen)
        parse_proxies(self.trusted_proxies)
        if not _DOMAIN.fullmatch(self.domain):
            raise _wrong("domain", "must be a name such as localhost or sandboxes.example.org")
        if self.public_url and not _ORIGIN.fullmatch(self.public_url):
            raise _wrong("public_url", "must look like https://example.org, with a port if it has one, and no path")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise _wrong("tls_cert", "and tls_key belong together")
        if not 0 <= self.warm_size <= limits.SANDBOXES_PER_NODE_MAX:
            raise _wrong("warm_size", f"must be from 0 to {limits.SANDBOXES_PER_NODE_MAX}")
        if not 0 < self.memory_overcommit <= 100:
            raise _wrong("memory_overcommit", "must be above 0 and at most 100")
        if not 0 <= self.pool_size_bytes <= limits.DISK_BYTES_MAX:
            raise _wrong("pool_size_bytes", f"must be between 0 and {limits.DISK_BYTES_MAX}")
        if not 1 <= self.usage_interval_s <= 3600:
            raise _wrong("usage_interval_s", "must be between 1 and 3600")
        if not 0 <= self.events_keep_days <= 36500:
            raise _wrong("events_keep_days", "must be between 0 and 36500")
        for name in ("price_wall_s", "price_cpu_s", "price_memory_gib_s", "price_disk_gib_s", "price_egress_gib"):
            if not 0 <= getattr(self, name) <= 1e9:
                raise _wrong(name, "must be between 0 and 1e9")
        if not 0 <= self.stop_s <= 3600:
            raise _wrong("stop_s", "must be between 0 and 3600")
        return dataclasses.replace(self, data=self.data.absolute(), cache=self.cache.absolute())

    @property
    def has_tls(self) -> bool:
        return self.tls or self.tls_cert is not None

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
