"""Debian root filesystems by mmdebstrap, from the package sources that this machine itself uses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from atoll.model.errors import Unavailable
from atoll.node import spawn
from atoll.node.install import workplace
from atoll.node.install.definitions import PATH, Definition

# What the host's apt was told about reaching its sources holds for the same sources here.
_CARRIED_OVER = re.compile(
    r"^Acquire::(?:https?|ftp)::|^Acquire::(?:Check-Valid-Until|Retries|ForceIPv[46]) ", re.IGNORECASE
)

_OPTIONS = (
    '--aptopt=APT::Install-Recommends "false"',
    '--aptopt=Acquire::Languages "none"',
    "--dpkgopt=path-exclude=/usr/share/man/*",
    "--dpkgopt=path-exclude=/usr/share/info/*",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
    "--dpkgopt=path-include=/usr/share/locale/locale.alias",
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-include=/usr/share/doc/*/copyright",
)


def build(definition: Definition, suite: str, root: Path, work: Path, apt_dir: Path = Path("/etc/apt")) -> None:
    """Make the empty folder `root` a root filesystem of the definition's packages."""
    argv: list[str | Path] = [
        "mmdebstrap",
        "--mode=root",
        "--format=directory",
        f"--variant={definition.variant}",
        *_OPTIONS,
    ]
    argv += [f"--aptopt={line}" for line in carried_over(spawn.run(["apt-config", "dump"]).text)]
    argv += [f"--include={','.join(definition.packages)}", suite, root]
    workplace.run_logged([*argv, *_sources_write(apt_dir, suite, work)], log=work / "mmdebstrap.log")


def add(packages: Sequence[str], suite: str, root: Path, work: Path, apt_dir: Path = Path("/etc/apt")) -> None:
    """Put more packages into a root filesystem that has been built before.

    The host fetches, because it is the host that knows its sources; the root's own dpkg installs.
    """
    state, archives = work / "apt-state", root / "var/cache/apt/archives"
    # Without pages of manuals there is no folder for them, and Java's links to them would fail.
    for folder in (state / "lists/partial", work / "apt-cache", archives / "partial", root / "usr/share/man/man1"):
        folder.mkdir(parents=True, exist_ok=True)
    options = {
        "Dir::State": state,
        "Dir::State::status": root / "var/lib/dpkg/status",
        "Dir::Cache": work / "apt-cache",
        "Dir::Cache::archives": archives,
        "Dir::Etc::SourceList": "/dev/null",
        "Dir::Etc::SourceParts": work / "sources",
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
    }
    (work / "sources").mkdir()
    for path in _sources_write(apt_dir, suite, work):
        path.rename(work / "sources" / path.name)
    apt = ["apt-get", "--yes", "--quiet", *(f"--option={name}={value}" for name, value in options.items())]
    workplace.run_logged([*apt, "update"], log=work / "update.log")
    workplace.run_logged([*apt, "install", "--download-only", *packages], log=work / "fetch.log")
    workplace.run_logged(
        # With /proc: the scripts of some packages (Java's certificates) do not run without it.
        [
            "unshare",
            "--mount",
            f"--root={root}",
            "--mount-proc",
            "dpkg",
            "--install",
            "--recursive",
            f"/{archives.relative_to(root)}",
        ],
        env={"PATH": PATH, "LANG": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"},
        log=work / "dpkg.log",
    )


def carried_over(apt_config: str) -> list[str]:
    """The settings of the host's apt that a build needs, from what `apt-config dump` prints."""
    return [line for line in apt_config.splitlines() if _CARRIED_OVER.match(line) and not line.endswith(' "";')]


def sources_deb822(text: str, suite: str) -> str:
    """The stanzas of a .sources file that offer the release `suite` itself."""
    kept = []
    for stanza in re.split(r"\n\s*\n", text.strip()):
        fields = dict(re.findall(r"^([A-Za-z-]+):[ \t]*(.*)$", stanza, re.MULTILINE))
        named = {key.lower(): value.split() for key, value in fields.items()}
        if "deb" not in named.get("types", []) or named.get("enabled", ["yes"]) == ["no"]:
            continue
        if "main" in named.get("components", []) and _offers(named.get("suites", []), suite):
            kept.append(stanza)
    return "\n\n".join(kept) + "\n" if kept else ""


def sources_one_line(text: str, suite: str) -> str:
    """The lines of a .list file that offer the release `suite` itself."""
    kept = []
    for line in text.splitlines():
        words = re.sub(r"\[.*?\]", "", line).split("#")[0].split()
        if len(words) >= 4 and words[0] == "deb" and "main" in words[3:] and _offers([words[2]], suite):
            kept.append(line)
    return "\n".join(kept) + "\n" if kept else ""


def _offers(suites: Iterable[str], suite: str) -> bool:
    return not {suite, f"{suite}-updates", f"{suite}-security", f"{suite}/updates"}.isdisjoint(suites)


def _sources_write(apt_dir: Path, suite: str, work: Path) -> list[Path]:
    texts = {
        "machine.sources": "\n".join(
            text
            for path in sorted(apt_dir.glob("sources.list.d/*.sources"))
            if (text := sources_deb822(path.read_text(), suite))
        ),
        "machine.list": "".join(
            sources_one_line(path.read_text(), suite)
            for path in (apt_dir / "sources.list", *sorted(apt_dir.glob("sources.list.d/*.list")))
            if path.is_file()
        ),
    }
    written = [work / name for name, text in texts.items() if text]
    if not written:
        raise Unavailable(
            f"no package source on this machine offers Debian {suite or '(unknown release)'}",
            code="no_package_source",
            hint=f"the built-in templates are made of the host's own packages: look in {apt_dir}",
        )
    for path in written:
        path.write_text(texts[path.name])
    return written
