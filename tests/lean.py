"""A small template with a live interpreter: what `code` has of Python and IPython, and little else.

Snapshots of it are carried between servers in seconds, where those of `code` take a minute on a busy machine.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from atoll.node.disks import btrfs

NAME = "lean"
_LIBRARIES = "usr/lib/x86_64-linux-gnu/"
_LEFT_OUT = {
    *("usr/share", "usr/include", "usr/lib/git-core", "usr/lib/file", "usr/lib/python3", "var/lib/apt", "var/lib/dpkg"),
    *(_LIBRARIES + name for name in ("libnode.so.108", "libicudata.so.72.1", "libcrypto.a", "perl")),
}
_PACKAGES = (
    *(
        "IPython",
        "asttokens",
        "decorator.py",
        "executing",
        "ipython_pygments_lexers.py",
        "matplotlib_inline",
        "pexpect",
    ),
    *(
        "prompt_toolkit",
        "ptyprocess",
        "pure_eval",
        "pygments",
        "stack_data",
        "traitlets",
        "typing_extensions.py",
        "wcwidth",
    ),
    *("psutil",),
)
_PLACE = "usr/local/lib/python3.11/dist-packages"


def template_add(data: Path) -> None:
    """Put it beside the other templates of a data directory."""
    templates = data / "pool/templates"
    root = templates / NAME
    btrfs.subvolume_create(root)
    root.chmod(0o755)
    _copy(templates / "base", root, "")
    (root / _PLACE).mkdir(parents=True, exist_ok=True)
    packages = [templates / "code" / _PLACE / name for name in _PACKAGES]
    _clone([path for path in packages if path.exists()], root / _PLACE)
    manifest = json.loads((templates / "base.json").read_text())
    (templates / f"{NAME}.json").write_text(json.dumps({**manifest, "name": NAME}))


def _copy(source: Path, target: Path, relative: str) -> None:
    """A folder without what is left out. Data is shared, so this costs the names only."""
    whole: list[Path] = []
    partly: list[Path] = []
    for path in sorted((source / relative).iterdir()):
        name = str(path.relative_to(source))
        if name in _LEFT_OUT:
            continue
        (partly if any(left.startswith(name + "/") for left in _LEFT_OUT) else whole).append(path)
    _clone(whole, target / relative)
    for path in partly:
        below = target / path.relative_to(source)
        below.mkdir(mode=0o755)
        _copy(source, target, str(path.relative_to(source)))


def _clone(paths: list[Path], target: Path) -> None:
    subprocess.run(["cp", "-a", "--reflink=always", *map(str, paths), str(target)], check=True, timeout=60)
