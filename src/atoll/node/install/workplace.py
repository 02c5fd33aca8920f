"""Unfinished work of set-up: folders that vanish unless completed, one builder at a time, nothing that outlives us.

A build can be cut off at any point, also by SIGKILL. So its programs run in a PID and a mount namespace of their own
that die with this process, it works in a folder that the next run sweeps away, and a result appears by one rename.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from atoll.model import limits
from atoll.model.errors import Internal
from atoll.node import spawn

PROGRAM_MODE = 0o755  # what all may run or enter, and only root may change

# pdeathsig ends `unshare` when we die, --kill-child ends the first process of the namespace with it, and the kernel
# then ends all others in there and takes their mounts away.
_CONTAINED = (
    *("setpriv", "--pdeathsig", "KILL"),
    *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--"),
)


@contextlib.contextmanager
def turn(cache: Path, say: Callable[[str], None]) -> Iterator[None]:
    """One set-up at a time per cache; sweeps away what an interrupted one left."""
    cache.mkdir(mode=0o755, parents=True, exist_ok=True)
    fd = os.open(cache / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another set-up on this machine ...")
            fcntl.flock(fd, fcntl.LOCK_EX)
        for leftover in sorted((cache / "work").glob("*")):
            remove(leftover)
        yield
    finally:
        os.close(fd)


@contextlib.contextmanager
def folder(work_dir: Path, name: str) -> Iterator[Path]:
    """A folder for one build, gone afterwards."""
    work_dir.mkdir(mode=0o755, parents=True, exist_ok=True)
    path = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=work_dir))
    os.chmod(path, PROGRAM_MODE)
    try:
        yield path
    finally:
        remove(path)


def remove(path: Path) -> None:
    """Delete a tree, but nothing that is mounted in it."""
    # `rm` and not shutil: it is faster on trees of this size, and it stays on one filesystem.
    spawn.run(["rm", "-rf", "--one-file-system", "--", path], timeout_s=limits.BUILD_S_MAX)


def link(target: Path, path: Path) -> None:
    """Make `path` a symbolic link to `target`, in one step."""
    unfinished = path.with_name(f".{path.name}.tmp")
    unfinished.unlink(missing_ok=True)
    os.symlink(target, unfinished)
    os.rename(unfinished, path)


def run_contained(
    argv: Sequence[str | Path], *, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> spawn.Finished:
    """Run a build step that cannot outlive us, and keep what it says."""
    return spawn.run([*_CONTAINED, *argv], timeout_s=limits.BUILD_S_MAX, cwd=cwd, env=env)


def run_logged(
    argv: Sequence[str | Path], *, log: Path, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> None:
    """Run a talkative build step that cannot outlive us; its last words are in the error if it fails."""
    with open(log, "wb") as file:
        finished = spawn.run(
            [*_CONTAINED, *argv], timeout_s=limits.BUILD_S_MAX, cwd=cwd, env=env, check=False, output_fd=file.fileno()
        )
    if finished.exit_code != 0:
        tail = log.read_bytes()[-limits.HELPER_TAIL_BYTES :].decode(errors="replace").strip()
        last_lines = "\n".join(tail.splitlines()[-8:])
        raise Internal(f"{argv[0]} failed ({finished.exit_code}):\n{last_lines}", code="build_failed", detail=tail)
