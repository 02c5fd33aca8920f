"""Which server, and which key: from arguments, from the environment, else the local server found by itself.

A local server leaves two files in its data directory: `server.json` says where it listens, and `key`, which only its
owner can read, opens it. That key is sent to that server only, never to another address that a variable names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from atoll.model import limits
from atoll.model.errors import ConnectionFailed, InvalidArgument, Unauthenticated

DEFAULT_DATA = "/var/lib/atoll"
START_HINT = "Start a server with `atoll serve`, or set ATOLL_URL and ATOLL_API_KEY to reach one elsewhere."


@dataclass(frozen=True, slots=True)
class Config:
    """One server and the key to it."""

    url: str
    api_key: str = field(repr=False)
    ca: str = ""
    """A file with the CA to trust instead of the usual ones."""

    @property
    def is_tls(self) -> bool:
        return self.url.startswith("https://")

    @property
    def is_loopback(self) -> bool:
        host = urlsplit(self.url).hostname or ""
        return host == "localhost" or host == "::1" or host.startswith("127.")


def data_dir(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("ATOLL_DATA") or DEFAULT_DATA)


def discover(url: str | None, api_key: str | None, environ: Mapping[str, str]) -> Config:
    """The server to talk to. Arguments come first, then ATOLL_URL and ATOLL_API_KEY, then the local server."""
    data = data_dir(environ)
    chosen_url = url or environ.get("ATOLL_URL") or ""
    chosen_key = api_key or environ.get("ATOLL_API_KEY") or ""
    ca = environ.get("ATOLL_CA") or ""
    if not chosen_url:
        local_url = _local_url(data)
        if local_url is None:
            raise ConnectionFailed(f"no server is running on {data}", hint=START_HINT)
        return Config(_checked(local_url), chosen_key or _local_key(data), ca or _local(data, "ca") or "")
    chosen_url = _checked(chosen_url)
    if not ca and chosen_url == _local_url(data):
        ca = _local(data, "ca") or ""
    if not chosen_key and chosen_url == _local_url(data):
        chosen_key = _local_key(data)
    if not chosen_key:
        raise Unauthenticated(
            f"no API key for {chosen_url}",
            code="no_key",
            hint="Pass api_key=, or set ATOLL_API_KEY. A server keeps its first key in the file `key` of its data "
            "directory.",
        )
    return Config(chosen_url, chosen_key, ca)


def _checked(url: str) -> str:
    try:
        parts = urlsplit(url)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        fine = False
    if not fine or parts.query or parts.fragment or "@" in parts.netloc:
        raise InvalidArgument(
            f"{url[:200]!r} is not the address of a server",
            code="invalid_url",
            hint="It looks like http://127.0.0.1:7070",
        )
    return url.rstrip("/")


def _local_url(data: Path) -> str | None:
    """Where the server on this data directory says it listens, if one does."""
    url = _local(data, "url")
    return url.rstrip("/") if url is not None else None


def _local(data: Path, name: str) -> str | None:
    """What the server on this data directory says of itself."""
    text = _read_bounded(data / "server.json")
    try:
        value = json.loads(text).get(name) if text else None
    except (ValueError, AttributeError):
        return None
    return value if isinstance(value, str) else None


def _local_key(data: Path) -> str:
    path = data / "key"
    key = _read_bounded(path)
    if not key:
        raise Unauthenticated(
            f"no API key, and {path} cannot be read",
            code="no_key",
            hint="Set ATOLL_API_KEY, or run as the user who owns that file.",
        )
    return key.strip()


def _read_bounded(path: Path) -> str:
    """The text of a small file; nothing if it is not there or not ours to read."""
    try:
        with path.open("rb") as file:
            return file.read(limits.DISCOVERY_BYTES_MAX).decode("utf-8", "replace")
    except OSError:
        return ""
