"""The guest's own interpreter: Python, its dynamic loader, its libraries and a trimmed standard library in one folder.

It comes out of the template `base` and runs in any root filesystem, also one without Python or glibc:

    <dir>/lib/ld-linux-x86-64.so.2 --library-path <dir>/lib <dir>/bin/python3 -I -S ...

Python finds its standard library from the place of `bin/python3`, so the folder can be mounted anywhere.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from atoll.model.errors import Internal
from atoll.node.install import workplace
from atoll.node.install.layout import loader_name

# Modules of no use without a screen, a compiler or a developer; they are half of the standard library.
_LEFT_OUT = frozenset(
    ("test", "tests", "idlelib", "idle_test", "tkinter", "turtledemo", "turtle.py", "ensurepip", "venv", "lib2to3")
) | frozenset(("distutils", "pydoc_data", "pydoc.py", "dist-packages", "site-packages", "sitecustomize.py"))


def build(root: Path, target: Path, machine: str) -> None:
    """Make `target` from the Python in the root filesystem `root`."""
    version = python_version(os.listdir(root / "usr/bin"))
    stdlib = root / "usr/lib" / version
    for folder in ("bin", "lib"):
        (target / folder).mkdir(parents=True)
    shutil.copy(root / "usr/bin" / version, target / "bin/python3")
    shutil.copytree(stdlib, target / "lib" / version, ignore=_ignored)
    _libraries_copy(root, [f"/usr/bin/{version}", *_extensions(root, stdlib)], target / "lib")
    loader = loader_name(machine)
    if not (target / "lib" / loader).exists():
        raise Internal(f"the dynamic loader {loader} is not among the libraries of Python", code="build_failed")
    # Unchecked: the folder is read-only for ever, so looking for a newer source at each import is wasted.
    workplace.run_contained(
        [
            *(*argv(target, machine), "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"),
            *("-s", target, "-p", "/runtime", target / "lib" / version),
        ]
    )
    check(target, machine)


def argv(folder: Path, machine: str) -> list[str]:
    """The words that start the interpreter in `folder`, as seen from where it runs."""
    return [
        str(folder / "lib" / loader_name(machine)),
        *("--library-path", str(folder / "lib")),
        *(str(folder / "bin/python3"), "-I", "-S"),
    ]


def check(folder: Path, machine: str) -> None:
    """Run it: the modules that a guest needs must come from this folder alone."""
    code = (
        "import sys, os, socket, json, select, struct, ctypes, hashlib, zlib, bz2, lzma, zipfile, tarfile, subprocess;"
        "import pwd, grp, fcntl, termios, random, ssl;"
        f"assert os.__file__.startswith({str(folder)!r}), os.__file__;"
        f"assert all(p.startswith({str(folder)!r}) for p in sys.path), sys.path"
    )
    workplace.run_contained([*argv(folder, machine), "-c", code])


def python_version(names: Iterable[str]) -> str:
    """The newest "python3.N" among the names of programs."""
    found = [(int(match[1]), name) for name in names if (match := re.fullmatch(r"python3\.(\d+)", name))]
    if not found:
        raise Internal("the template base has no Python", code="build_failed")
    return max(found)[1]


def libraries(ldd: str) -> set[str]:
    """The files that `ldd` lists, as absolute paths; raises for one that it did not find."""
    if missing := re.findall(r"^\s*(\S+) => not found", ldd, re.MULTILINE):
        raise Internal(
            f"libraries are missing in the template base: {' '.join(sorted(set(missing)))}", code="build_failed"
        )
    return set(re.findall(r"^\s+(?:\S+ => )?(/\S+) \(0x[0-9a-f]+\)$", ldd, re.MULTILINE))


def _ignored(_: str, names: list[str]) -> set[str]:
    return {name for name in names if name in _LEFT_OUT or name == "__pycache__" or name.startswith("config-3")}


def _extensions(root: Path, stdlib: Path) -> list[str]:
    return [
        f"/{path.relative_to(root)}" for path in sorted(stdlib.glob("lib-dynload/*.so")) if "_tkinter" not in path.name
    ]


def _libraries_copy(root: Path, programs: list[str], target: Path) -> None:
    listed = workplace.run_contained(["chroot", root, "ldd", *programs]).text
    # A program's own line has no indent; `text` strips that of the first line only.
    for library in libraries("\n" + listed):
        # The name that programs ask for is the link's; the file behind it is what is copied.
        shutil.copyfile(_resolved(root, library), target / Path(library).name)
        os.chmod(target / Path(library).name, workplace.PROGRAM_MODE)


def _resolved(root: Path, path: str) -> Path:
    """Follow the links of `path` inside `root`."""
    found = root / path.lstrip("/")
    for _ in range(16):
        if not found.is_symlink():
            parent = Path(os.path.realpath(found.parent))
            inside = parent if parent.is_relative_to(root) else root / str(parent).lstrip("/")
            return inside / found.name
        to = os.readlink(found)
        found = root / to.lstrip("/") if to.startswith("/") else found.parent / to
    raise Internal(f"{path} in {root} is a loop of links", code="build_failed")
