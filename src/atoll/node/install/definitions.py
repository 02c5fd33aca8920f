"""What set-up builds and the keys of the results: a key is a hash of all that goes into a thing.

Definition files lie beside this module: `runsc/` (the pinned Go module) and `templates/` (files and pinned packages).
The builders' own versions are numbers here: raise one when its builder makes something else of the same definition.
"""

from __future__ import annotations

import functools
import hashlib
import json
import platform
from dataclasses import dataclass, field
from importlib import resources
from importlib.resources.abc import Traversable

from atoll.model.errors import NotFound

RUNSC_BUILDER = 1
RUNTIME_BUILDER = 1
TEMPLATE_BUILDER = 1

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_BASE_PACKAGES = (
    *("bash", "coreutils", "procps", "less", "file", "sudo", "locales", "ca-certificates"),
    *("git", "curl", "wget", "rsync", "jq", "vim-tiny", "nano", "iproute2", "netcat-openbsd"),
    *("unzip", "zip", "xz-utils", "zstd"),
    *("python3", "python3-venv", "python3-pip", "python-is-python3", "nodejs", "npm"),
)
# Interpreters beside Python and Node, started on first use. Seen: Java 260 MB and R 44 MB on disk, libraries apart;
# with them and the Jupyter packages the archive grew from 365 to 560 MB.
_CODE_PACKAGES = ("r-base-core", "r-cran-irkernel", "default-jdk-headless")


@dataclass(frozen=True, slots=True)
class Definition:
    """One built-in template. `parent` names the template it starts from; without one it is made of packages alone."""

    name: str
    build_duration: str
    parent: str = ""
    variant: str = "minbase"  # of mmdebstrap; "extract" only unpacks the packages
    packages: tuple[str, ...] = ()  # of Debian; with a parent they are added to it
    requirements: str = ""  # a file of pinned Python packages with hashes, in `templates/`
    prepare: tuple[str, ...] = ()  # a program that the template's user runs once, for what it leaves behind
    user: str = "user"
    workdir: str = "/home/user"
    env: dict[str, str] = field(default_factory=lambda: {"LANG": "C.UTF-8", "PATH": PATH})
    warm: tuple[str, ...] = ()  # languages whose interpreters run before anybody asks; none: the usual ones


TEMPLATES = {
    "base": Definition("base", "about a minute and a half", packages=_BASE_PACKAGES),
    "code": Definition(
        "code",
        "about four minutes",
        parent="base",
        packages=_CODE_PACKAGES,
        requirements="code.txt",
        # The list of fonts, which the first figure of every sandbox would otherwise wait for.
        prepare=("/usr/bin/python3", "-c", "import matplotlib.font_manager"),
    ),
    # For tests: neither Python nor glibc inside, so it shows that the guest brings all it needs.
    "busybox": Definition("busybox", "seconds", variant="extract", packages=("busybox-static",)),
}
BUILT_IN = ("base", "code")


def template(name: str) -> Definition:
    try:
        return TEMPLATES[name]
    except KeyError:
        raise NotFound(f"there is no built-in template named {name!r}", code="no_such_template") from None


def file_bytes(*parts: str) -> bytes:
    """A definition file."""
    return _folder().joinpath(*parts).read_bytes()


@functools.cache
def runsc_key(machine: str) -> str:
    return _key(
        {"builder": RUNSC_BUILDER, "machine": machine}, file_bytes("runsc", "go.mod"), file_bytes("runsc", "go.sum")
    )


@functools.cache
def template_key(name: str, machine: str, suite: str = "") -> str:
    """The key of a built template; `suite` is the Debian release, by default the host's own."""
    definition = template(name)
    suite = suite or host_suite()
    parent = template_key(definition.parent, machine, suite) if definition.parent else ""
    facts: dict[str, object] = {
        "builder": TEMPLATE_BUILDER,
        "machine": machine,
        "suite": suite,
        "parent": parent,
        "variant": definition.variant,
        "packages": definition.packages,
        "user": definition.user,
        "workdir": definition.workdir,
        "env": definition.env,
    }
    if definition.prepare:
        facts["prepare"] = definition.prepare
    return _key(facts, *_definition_files(definition))


@functools.cache
def runtime_key(machine: str, suite: str = "") -> str:
    return _key({"builder": RUNTIME_BUILDER, "base": template_key("base", machine, suite)})


@functools.cache
def host_suite() -> str:
    """The code name of the host's own release, e.g. "bookworm"; "" where it has none."""
    try:
        return platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    except OSError:
        return ""


def overlay(name: str) -> list[tuple[str, bytes]]:
    """The files that a template adds to what its packages bring: path in the template, content."""
    folder = _folder().joinpath("templates", name)
    return sorted(_files(folder, "")) if folder.is_dir() else []


def _definition_files(definition: Definition) -> list[bytes]:
    parts = [path.encode() + b"\0" + content for path, content in overlay(definition.name)]
    if definition.requirements:
        parts.append(file_bytes("templates", definition.requirements))
    return parts


def _files(folder: Traversable, prefix: str) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    for entry in folder.iterdir():
        path = f"{prefix}/{entry.name}"
        found += _files(entry, path) if entry.is_dir() else [(path, entry.read_bytes())]
    return found


def _folder() -> Traversable:
    return resources.files("atoll.node.install")


def _key(facts: dict[str, object], *parts: bytes) -> str:
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for part in parts:
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()[:16]
