"""The variables that send E2B's clients here."""

from __future__ import annotations

import importlib.metadata
import os
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from atoll.cli import env
from atoll.client._config import Config
from atoll.model.errors import InvalidArgument
from atoll.wire import token

KEY = token.key_mint(b"k" * 32)


def test_one_address_for_everything() -> None:
    values = env.header_mode(Config("http://127.0.0.1:7070", KEY), {})
    assert values["E2B_API_URL"] == values["E2B_SANDBOX_URL"] == "http://127.0.0.1:7070"
    assert str(values["E2B_API_KEY"]).startswith("e2b_")
    assert values["E2B_ACCESS_TOKEN"] == values["E2B_API_KEY"]
    assert values["E2B_DOMAIN"] is None


def test_names_of_templates_travel_in_the_address() -> None:
    values = env.header_mode(Config("http://h:1", KEY), {"desktop": "code", "a/b": "base"})
    assert values["E2B_API_URL"] == "http://h:1/e2b/desktop=code,a%2Fb=base"


def test_a_domain_needs_tls() -> None:
    with pytest.raises(InvalidArgument):
        env.domain_mode(Config("http://127.0.0.1:7070", KEY), "localhost", {})
    values = env.domain_mode(Config("https://127.0.0.1:7070", KEY), "localhost", {})
    assert (values["E2B_DOMAIN"], values["E2B_API_URL"]) == ("localhost:7070", None)
    assert env.domain_mode(Config("https://example.org", KEY), "example.org", {})["E2B_DOMAIN"] == "example.org"


def test_what_was_set_before_stays() -> None:
    values = env.shims({"NODE_OPTIONS": "--max-old-space-size=9", "PYTHONPATH": "/mine"})
    assert str(values["NODE_OPTIONS"]).startswith("--max-old-space-size=9 --require=")
    assert str(values["PYTHONPATH"]).endswith(f"{os.pathsep}/mine")
    assert env.shims({name: str(value) for name, value in values.items()}) == values


def test_the_servers_ca_is_trusted_beside_the_others(tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    ca.write_text("-----BEGIN CERTIFICATE-----\nours\n")
    values = env.trust(str(ca), {"XDG_CACHE_HOME": str(tmp_path)})
    bundle = Path(str(values["SSL_CERT_FILE"])).read_text()
    assert bundle.endswith(ca.read_text())
    assert values["NODE_EXTRA_CA_CERTS"] == str(ca)


def test_a_facade_of_others_brings_its_own_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """By an entry point, as the façade itself; ours cannot be taken away by one of the same name."""
    command = click.Command("mine", callback=lambda: click.echo("export MINE=1"))
    points = EntryPoints(
        [EntryPoint("mine", f"{__name__}:brought", env.GROUP), EntryPoint("e2b", "nowhere:at_all", env.GROUP)]
    )
    monkeypatch.setattr(importlib.metadata, "entry_points", points.select)
    monkeypatch.setitem(globals(), "brought", command)
    run = CliRunner()
    assert run.invoke(env.env, ["mine"]).output == "export MINE=1\n"
    assert run.invoke(env.env, ["nothing"]).exit_code == 2
    shown = run.invoke(env.env, ["--help"]).output
    assert "mine" in shown
    assert "E2B's SDKs" in shown
