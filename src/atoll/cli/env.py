"""`atoll env`: the variables that send another vendor's SDK to this server, for a shell to evaluate."""

from __future__ import annotations

import hashlib
import os
import shlex
import socket
import ssl
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from urllib.parse import quote, urlsplit

import click

from atoll.cli.options import Pairs
from atoll.client._config import Config, discover
from atoll.model.errors import InvalidArgument
from atoll.wire import e2bkey, token

LOCAL = "localhost"
_SHIMS = Path(__file__).parent / "localnames"


GROUP = "atoll.env"
"""The entry points of commands for façades that are installed beside ours."""


class Vendors(click.Group):
    """The commands of ours, and those that façades of others bring."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *(entry.name for entry in metadata.entry_points(group=GROUP))})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = super().get_command(ctx, cmd_name)
        if found is not None:
            return found
        for entry in metadata.entry_points(group=GROUP, name=cmd_name):
            command = entry.load()
            assert isinstance(command, click.Command), f"the entry point {entry.name} of {GROUP} is no command"
            return command
        return None


@click.group(cls=Vendors)
def env() -> None:
    """Print the variables that send another vendor's SDK here: eval "$(atoll env e2b)"."""


@env.command()
@click.option(
    "--domain",
    is_flag=False,
    flag_value=LOCAL,
    default=None,
    help="Give each port of each sandbox a name under this domain [localhost], with TLS.",
)
@click.option("--map", "mapped", multiple=True, type=Pairs(), help="Another name for a template: desktop=code.")
def e2b(domain: str | None, mapped: Sequence[tuple[str, str]]) -> None:
    """Print the variables for E2B's SDKs and CLI.

    Without --domain everything goes to one address and needs neither names nor TLS. With it `get_host` gives addresses
    that work; the server must serve with TLS (`atoll serve --tls`).
    """
    config = discover(None, None, os.environ)
    if domain is None:
        values = header_mode(config, dict(mapped))
    else:
        values = domain_mode(config, domain, dict(mapped))
        if (domain == LOCAL or domain.endswith(f".{LOCAL}")) and not names_resolve(domain):
            values |= shims(os.environ)
    if config.is_tls and config.ca:
        values |= trust(config.ca, os.environ)
    for name, value in values.items():
        click.echo(f"unset {name}" if value is None else f"export {name}={shlex.quote(value)}")


Values = dict[str, str | None]


def header_mode(config: Config, mapped: Mapping[str, str]) -> Values:
    """One address for all; None unsets a variable that would lead elsewhere."""
    return {
        **_keys(config),
        "E2B_API_URL": config.url + _map_path(mapped),
        "E2B_SANDBOX_URL": config.url,
        "E2B_VOLUME_API_URL": config.url,
        "E2B_DOMAIN": None,
        "E2B_DEBUG": None,
    }


def domain_mode(config: Config, domain: str, mapped: Mapping[str, str]) -> Values:
    """A name for each port, and one for the API."""
    if not config.is_tls:
        raise InvalidArgument(
            "the server does not serve with TLS, and E2B's clients insist on it under a domain",
            code="no_tls",
            hint="Start it with `atoll serve --tls`, or leave --domain out.",
        )
    port = urlsplit(config.url).port
    place = domain if port in (None, 443) else f"{domain}:{port}"
    return {
        **_keys(config),
        "E2B_DOMAIN": place,
        "E2B_API_URL": f"https://api.{place}{_map_path(mapped)}" if mapped else None,
        "E2B_SANDBOX_URL": None,
        "E2B_VOLUME_API_URL": None,
        "E2B_DEBUG": None,
    }


def _keys(config: Config) -> Values:
    """Our one key under both of their names: some commands of E2B's older command line want the second."""
    key = e2bkey.spelled(config.api_key) if token.is_key(config.api_key) else config.api_key
    return {"E2B_API_KEY": key, "E2B_ACCESS_TOKEN": key}


def _map_path(mapped: Mapping[str, str]) -> str:
    """Names of templates travel in the address: E2B's clients have no variable for them."""
    if not mapped:
        return ""
    return "/e2b/" + ",".join(f"{quote(name, safe='')}={quote(ours, safe='')}" for name, ours in mapped.items())


def names_resolve(domain: str) -> bool:
    """Whether this machine knows that every name under localhost is itself."""
    try:
        return bool(socket.getaddrinfo(f"atoll.{domain}", 443, socket.AF_INET))
    except OSError:
        return False


def shims(environ: Mapping[str, str]) -> Values:
    """What teaches Python and Node the names that this machine's resolver does not know."""
    required = f"--require={_SHIMS / 'localnames.cjs'}"
    options = environ.get("NODE_OPTIONS", "")
    paths = [path for path in environ.get("PYTHONPATH", "").split(os.pathsep) if path and path != str(_SHIMS)]
    return {
        "PYTHONPATH": os.pathsep.join([str(_SHIMS), *paths]),
        "NODE_OPTIONS": options if required in options else f"{options} {required}".strip(),
    }


def trust(ca: str, environ: Mapping[str, str]) -> Values:
    """What makes Python and Node trust the server's CA beside those that they trust anyway."""
    try:
        own = Path(ca).read_bytes()
    except OSError as error:
        raise InvalidArgument(f"the CA {ca} cannot be read: {error.strerror}", code="local_file") from error
    usual = Path(ssl.get_default_verify_paths().cafile or ssl.get_default_verify_paths().openssl_cafile)
    known = usual.read_bytes() if usual.is_file() else b""
    both = known if own in known else known + b"\n" + own
    folder = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "atoll"
    folder.mkdir(parents=True, exist_ok=True)
    bundle = folder / f"ca-{hashlib.sha256(both).hexdigest()[:16]}.pem"
    draft = bundle.with_suffix(f".{os.getpid()}.new")
    draft.write_bytes(both)
    draft.replace(bundle)
    return {"SSL_CERT_FILE": str(bundle), "NODE_EXTRA_CA_CERTS": ca}
