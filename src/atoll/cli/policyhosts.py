"""Which hosts this machine's package tools and git use, by their own configuration; no network is asked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

_URL = re.compile(r"\b(?:https?|ssh|git)://(?:[^\s/@\"']+@)?([A-Za-z0-9.-]+)(?::(\d{1,5}))?")
_SCP = re.compile(r"(?:^|[\s=])[\w.-]+@([A-Za-z0-9.-]+\.[A-Za-z]{2,}):(?!\d+/)", re.MULTILINE)
_FILE_BYTES_MAX = 1024 * 1024  # a configuration file that is larger is none
_WEB_PORTS = ("", "80", "443")


def proposed(home: Path, etc: Path, folder: Path, environment: Mapping[str, str]) -> dict[str, list[str]]:
    """Lists by name: packages (pip, npm, apt) and git."""
    variables = {name.upper(): value for name, value in environment.items()}  # npm takes them in any case
    named = ("PIP_CONFIG_FILE", "NPM_CONFIG_USERCONFIG", "NPM_CONFIG_GLOBALCONFIG")
    packages = _texts(
        [
            *(Path(variables[name]) for name in named if variables.get(name)),
            *(etc / "pip.conf", home / ".config/pip/pip.conf", home / ".pip/pip.conf"),
            *(etc / "npmrc", home / ".npmrc", folder / ".npmrc"),
            etc / "apt/sources.list",
            *sorted((etc / "apt/sources.list.d").glob("*.list")),
            *sorted((etc / "apt/sources.list.d").glob("*.sources")),
        ]
    )
    packages += [variables.get(name, "") for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "NPM_CONFIG_REGISTRY")]
    git = _texts([etc / "gitconfig", home / ".gitconfig", home / ".config/git/config", folder / ".git/config"])
    return {"packages": hosts_in(packages), "git": hosts_in(git, ssh=True)}


def hosts_in(texts: Iterable[str], *, ssh: bool = False) -> list[str]:
    """The hosts of all addresses in some texts, as rules; comments are left out."""
    found: set[str] = set()
    for text in texts:
        plain = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith(("#", ";", "//")))
        for match in _URL.finditer(plain):
            host, port = match[1].rstrip(".").lower(), match[2] or ""
            if match[0].startswith("ssh"):
                port = port or "22"
            found.add(host if port in _WEB_PORTS else f"{host}:{port}")
        if ssh:
            found.update(f"{match[1].lower()}:22" for match in _SCP.finditer(plain))
    return sorted(host for host in found if "." in host)


def _texts(paths: Iterable[Path]) -> list[str]:
    texts = []
    for path in paths:
        try:
            if path.is_file() and path.stat().st_size <= _FILE_BYTES_MAX:
                texts.append(path.read_text("utf-8", "replace"))
        except OSError:
            continue  # one that we may not read is not ours to tell about
    return texts
