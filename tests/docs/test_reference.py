"""The reference pages are complete, and every link in every document leads somewhere."""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from atoll import Sandbox
from atoll.api.app import endpoints
from atoll.cli.main import COMMANDS, atoll
from atoll.client import CommandResult, Commands, Files, Process
from atoll.model import limits
from atoll.model.lifecycle import EndReason, State

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
COLUMNS_MAX = 120


def test_every_operation_is_described() -> None:
    """And nothing is described that does not exist."""
    described = set(re.findall(r"^\| `([A-Z]+ /[^` ]*)` \|", (DOCS / "api.md").read_text(), re.MULTILINE))
    assert described == {f"{endpoint.method} {endpoint.path}" for endpoint in endpoints()}


def test_every_state_and_reason_is_described() -> None:
    page = (DOCS / "api.md").read_text()
    reasons = set(re.findall(r"^\| `(\w+)` \| [a-z]", page, re.MULTILINE)) - {"end_reason"}
    assert reasons == {reason.value for reason in EndReason}
    assert all(f"`{state.value}`" in page for state in State)


def commands() -> Iterator[tuple[str, click.Command]]:
    context = click.Context(atoll)
    for name in COMMANDS:
        command = atoll.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from ((f"{name} {inner}", command.commands[inner]) for inner in command.commands)
        else:
            yield name, command


def test_every_command_is_described() -> None:
    page = (DOCS / "cli.md").read_text()
    described = set(re.findall(r"^\| `atoll ([a-z0-9 -]+?)(?: [A-Z].*?)?` \|", page, re.MULTILINE))
    assert described == {name for name, _ in commands()}


def test_every_described_option_exists() -> None:
    page = (DOCS / "cli.md").read_text()
    parameters = [parameter for _, command in commands() for parameter in command.params]
    known = {option for parameter in parameters for option in (*parameter.opts, *parameter.secondary_opts)}
    assert set(re.findall(r"--[a-z][a-z-]+", page)) <= known | {"--json", "--help"}


@pytest.mark.parametrize("kind", [Sandbox, Commands, Files, Process, CommandResult])
def test_every_sdk_method_is_described(kind: type) -> None:
    page = (DOCS / "sdk.md").read_text()
    inner = {"checked"}  # what `check=True` does
    for name, _ in inspect.getmembers(kind):
        if not name.startswith("_") and name not in inner:
            assert re.search(rf"\b{name}\b", page), f"{kind.__name__}.{name}"


def test_every_dependency_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = [project["project"]["dependencies"], *project["project"]["optional-dependencies"].values()]
    needed = {re.split(r"[\[><=~]", line)[0] for group in groups for line in group}
    tables = (DOCS / "DESIGN.md").read_text().partition("## Dependencies")[2]
    assert set(re.findall(r"^\| ([a-z0-9-]+) \|", tables, re.MULTILINE)) - {"package"} == needed
    assert all(line.split(">")[0].split("=")[0] in tables for line in project["dependency-groups"]["dev"])


def links(page: Path) -> Iterator[tuple[str, str]]:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        path, _, anchor = target.partition("#")
        yield path, anchor


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for path, anchor in links(page):
        assert "://" not in path, f"{path}: documents must be readable without a network"
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name} links to {path}"
        assert not anchor or anchor in anchors(target), f"{page.name} links to {path}#{anchor}"


@pytest.mark.parametrize(
    ("page", "words", "size_bytes"),
    [
        ("ARCHITECTURE.md", "the last {} of each stream", limits.RING_BYTES_MAX),
        ("docs/api.md", "the last {} of each stream", limits.RING_BYTES_MAX),
        ("docs/api.md", "at most {}", limits.JSON_BODY_BYTES_MAX),
        ("docs/sdk.md", "over {} of a stream", limits.COMMAND_OUTPUT_BYTES_MAX),
        ("docs/sdk.md", "at most {} at once", limits.FILE_READ_BYTES_MAX),
        ("docs/SECURITY_MODEL.md", "frames of {} at most", limits.FRAME_BYTES_MAX),
        ("docs/how-to/production-host.md", "{} for its runtime", limits.RUNTIME_MEMORY_BYTES),
        ("docs/how-to/production-host.md", "{} are kept for the host", limits.MEMORY_RESERVE_BYTES),
        ("docs/how-to/production-host.md", "below {} no sandbox", limits.POOL_RESERVE_BYTES),
    ],
)
def test_bounds_in_the_text_are_those_of_the_code(page: str, words: str, size_bytes: int) -> None:
    said = words.format(f"{size_bytes // limits.MIB} MiB")
    assert " ".join(said.split()).lower() in " ".join((ROOT / page).read_text().split()).lower()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_text_fits_the_width(page: Path) -> None:
    """Tables are one line per row, so they may be wider."""
    for number, line in enumerate(page.read_text().splitlines(), 1):
        assert line.startswith("|") or len(line) <= COLUMNS_MAX, f"{page.name}:{number} has {len(line)} columns"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_paths_in_the_text_exist(page: Path) -> None:
    """What looks like a file of this repository is one."""
    for path in re.findall(r"`((?:src|tests|tools|docs|examples|openapi)/[\w./-]+)`", page.read_text()):
        assert (ROOT / path).exists(), f"{page.name} names {path}"
