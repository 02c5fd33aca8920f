"""`podman run` of a program on the disk of a template, where podman is installed and can run here."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

RUN_S_MAX = 60
RUNTIMES = ("crun", "runc")  # the first does not know every kind of host


@contextmanager
def podman(root: Path, argv: tuple[str, ...]) -> Iterator[tuple[Callable[[], str] | None, str]]:
    """What runs the program in a container of its own; or None, and why there is none."""
    if shutil.which("podman") is None:
        yield None, "podman is not installed (apt-get install podman)"
        return
    with tempfile.TemporaryDirectory(prefix="pm") as folder:  # podman takes no long path
        try:
            yield _first_that_works(root, Path(folder), argv)
        finally:
            # Its storage is a mount of its own, which nobody else takes away.
            subprocess.run(["umount", f"{folder}/storage/overlay"], capture_output=True, check=False)


def _first_that_works(root: Path, folder: Path, argv: tuple[str, ...]) -> tuple[Callable[[], str] | None, str]:
    why = ""
    for runtime in filter(shutil.which, RUNTIMES):
        command = [
            *("podman", "--runtime", runtime, "--cgroup-manager", "cgroupfs"),
            *("--root", str(folder / "storage"), "--runroot", str(folder / "run")),
            *("run", "--rm", "--network", "none", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"),
            *("--rootfs", f"{root}:O", *argv),
        ]

        def run(command: list[str] = command) -> str:
            return subprocess.run(command, capture_output=True, text=True, timeout=RUN_S_MAX, check=True).stdout

        try:
            run()
        except subprocess.CalledProcessError as error:
            why = f"podman with {runtime} cannot run here: {error.stderr.strip()[-200:]}"
        except subprocess.TimeoutExpired:
            why = f"podman with {runtime} did not end"
        else:
            return run, f"podman with {runtime}"
    return None, why or f"podman has none of {', '.join(RUNTIMES)}"
