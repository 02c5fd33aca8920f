"""Pinned Python packages into a root filesystem, fetched by the host, so that the machine's own index settings hold."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

from atoll.model.errors import Unavailable
from atoll.node.install import definitions, runtime, workplace

_SHEBANG = "#!/usr/bin/python3\n"


def install(requirements: bytes, root: Path, work: Path, machine: str) -> None:
    """Put packages system-wide below /usr/local of `root`; every file is checked against its pinned hash."""
    version = runtime.python_version(os.listdir(root / "usr/bin"))
    packages = root / "usr/local/lib" / version / "dist-packages"
    packages.mkdir(parents=True, exist_ok=True)
    (work / "requirements.txt").write_bytes(requirements)
    workplace.run_logged(
        [
            *(uv(), "pip", "install", "--quiet", "--require-hashes", "--only-binary", ":all:", "--link-mode", "copy"),
            *("--python", sys.executable, "--python-version", version.removeprefix("python")),
            *("--python-platform", f"{machine}-unknown-linux-gnu", "--target", packages),
            *("--requirements", work / "requirements.txt"),
        ],
        log=work / "packages.log",
    )
    (packages / ".lock").unlink(missing_ok=True)
    _programs_move(packages / "bin", root / "usr/local/bin")
    if (packages / "share").is_dir():
        shutil.copytree(packages / "share", root / "usr/local/share", dirs_exist_ok=True)
        shutil.rmtree(packages / "share")
    compile_all(root, f"/usr/local/lib/{version}/dist-packages", work)


def compile_all(root: Path, folder: str, work: Path) -> None:
    """Byte-compile with the root's own Python: the first import in a sandbox then reads and does not compile."""
    workplace.run_logged(
        [
            "chroot",
            root,
            "/usr/bin/python3",
            "-I",
            "-m",
            "compileall",
            "-q",
            "-x",
            r"lib2to3/tests|/tests?/.*bad",
            folder,
        ],
        env={"PATH": definitions.PATH, "LANG": "C.UTF-8"},
        log=work / "compile.log",
    )


def shebang_replaced(script: str) -> str:
    """A console script with the root's interpreter in its first line, in place of the installing one's."""
    # A long path is written as a shell line that re-executes the file, inside a Python string of three lines.
    body = re.sub(r"\A#!/bin/sh\n'''exec'.*\n' '''\n", "", script)
    body = re.sub(r"\A#!.*python.*\n", "", body)
    return script if body == script else _SHEBANG + body


def _programs_move(source: Path, target: Path) -> None:
    if not source.is_dir():
        return
    target.mkdir(parents=True, exist_ok=True)
    for program in sorted(source.iterdir()):
        content = program.read_bytes()
        if content.startswith(b"#!"):
            content = shebang_replaced(content.decode()).encode()
        (target / program.name).write_bytes(content)
        os.chmod(target / program.name, workplace.PROGRAM_MODE)
    shutil.rmtree(source)


def uv() -> str:
    """The program that fetches packages."""
    beside = os.path.dirname(sys.executable)
    found = shutil.which("uv", path=f"{beside}{os.pathsep}{os.environ.get('PATH', os.defpath)}")
    if found is None:
        raise Unavailable(
            "the program uv is not on this host", code="missing_program", hint="`make setup` installs it into .venv"
        )
    return found
