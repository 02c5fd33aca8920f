"""The gVisor driver: boxes as runsc containers on the systrap platform.

A box lives and dies with its sentry, the process whose pid runsc writes down at `create`. runsc's own state file is
believed in nothing: it says "running" long after a sentry was killed. Life is judged by pid and start time, and removal
is always by force.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio

from atoll.model import limits
from atoll.model.errors import AtollError, Internal, Unavailable
from atoll.node import spawn
from atoll.node.console import Console
from atoll.node.disks.pool import meaning
from atoll.node.processes import ProcessHandle
from atoll.node.runtime import checkpointfiles, goferroot, netstack, oci, sentrycall
from atoll.node.runtime.base import Box, BoxRecord, Bundle, Capabilities, Seen
from atoll.node.runtime.standing import Standing
from atoll.wire import framing

FLAGS = (
    "--platform=systrap",
    "--overlay2=none",  # writes go to the box's disk on the host, so that they survive the box
    "--network=sandbox",
    "--allow-suid",  # sudo; it stays inside the sentry
    # A connection that was open at a checkpoint must fail in the clone, not hang for ever.
    "--allow-live-tcp-migration=false",
    "--host-uds=none",
    "--host-fifo=none",
    "--watchdog-action=panic",
)


class Runsc:
    """Makes and finds gVisor boxes. `root` is where runsc keeps its state; one per server."""

    name = "runsc"

    def __init__(self, binary: Path, root: Path, *, strict: bool = False) -> None:
        self._binary = binary
        self._root = root
        self._flags = (*FLAGS, "--directfs=false") if strict else FLAGS
        self.spoken_to = False
        """Whether its sentries take checkpoints and restores from us: so it is with the version whose words we know."""

    async def probe(self) -> Capabilities:
        if not self._binary.exists():
            return Capabilities(problem=f"{self._binary} is not there; run `make setup`")
        finished = await spawn.run_async([self._binary, "--version"])
        version = finished.text.partition("\n")[0].removeprefix("runsc version ")
        self.spoken_to = sentrycall.KNOWN_COMMIT in version
        return Capabilities(version=version, snapshots=True, pause=True)

    async def create(self, bundle: Bundle) -> Box:
        (bundle.folder / "config.json").write_text(json.dumps(oci.config(bundle)))
        pid_file = bundle.folder / "pid"
        command = ("create", "--bundle", str(bundle.folder), "--pid-file", str(pid_file), bundle.box_id)
        console = Console()
        try:
            await self.run(bundle.folder, command, console)
            handle = ProcessHandle.open(int(pid_file.read_text()))
            if handle is None:
                said = f"{console.text()}\n{_log_tail(bundle.folder)}"
                raise Internal("the sandbox ended while it was made", code="start_failed", detail=said)
        except BaseException:
            console.close()
            raise
        return RunscBox(self, bundle, handle, console)

    async def adopt(self, bundle: Bundle, record: BoxRecord) -> Box | None:
        handle = ProcessHandle.open(record.pid, record.pid_started)
        return RunscBox(self, bundle, handle) if handle else None

    async def discard(self, box_id: str, folder: Path) -> None:
        # `delete` does nothing without a state file. A box that was destroyed has none any more, and a create that was
        # killed early none yet: no program is started for either.
        if any(self._root.glob(f"*{box_id}*")):
            await self.run(folder, ("delete", "--force", box_id), check=False)
        self.forget(box_id)

    def forget(self, box_id: str) -> None:
        """Remove what runsc keeps of a box that is dead. `runsc delete` would do no more than that, in 40 ms."""
        for state in (*self._root.glob(f"*{box_id}*"), self.control_socket(box_id)):
            shutil.rmtree(state, ignore_errors=True) if state.is_dir() else state.unlink(missing_ok=True)

    def control_socket(self, box_id: str) -> Path:
        """Where runsc puts it: with its state, unless that path is too long for a socket's name."""
        name = f"runsc-{box_id}.sock"
        return next((path for path in (self._root / name, Path("/run") / name) if path.exists()), self._root / name)

    def gofer_pid(self, box_id: str) -> int:
        """As runsc wrote it down; looked at, because a pid may be somebody else's by now."""
        state = next(iter(self._root.glob(f"{box_id}_*.state")), None)
        if state is None:
            raise ProcessLookupError(box_id)
        pid = int(json.loads(state.read_text())["goferPid"])
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if b"gofer" not in words or box_id.encode() not in words:
            raise ProcessLookupError(pid)
        return pid

    async def run(
        self, folder: Path, command: Sequence[str], console: Console | None = None, *, check: bool = True
    ) -> None:
        """One runsc command; what it complains about is in its log, as JSON, and becomes the error's detail."""
        log = folder / "runsc.log"
        flags = ("--root", str(self._root), "--log", str(log), "--log-format=json", *self._flags)
        panic = f"--panic-log={folder / 'panic.log'}"
        output_fd = console.fd if console else None
        finished = await spawn.run_async([self._binary, *flags, panic, *command], check=False, output_fd=output_fd)
        if check and finished.exit_code != 0:
            raise _failure(command[0], folder, console.text() if console else finished.stderr)


class RunscBox:
    """One gVisor container."""

    def __init__(self, runsc: Runsc, bundle: Bundle, sentry: ProcessHandle, console: Console | None = None) -> None:
        self.box_id = bundle.box_id
        self._console = console
        self._runsc = runsc
        self._bundle = bundle
        self._sentry = sentry
        self._standing = Standing(bundle.folder)

    @property
    def bulk(self) -> str:
        # A known sentry writes the pages one after the other, by one thread (stateio.FDWriter, without O_DIRECT), and
        # begins when its filesystems are prepared for saving, all that was dirty in them written (Kernel.SaveTo).
        return checkpointfiles.PAGES if self._runsc.spoken_to else ""

    @property
    def late_root(self) -> bool:
        return self._runsc.spoken_to and goferroot.is_possible()

    async def root_change(self, root: Path) -> None:
        binds = [bind.target for bind in self._bundle.binds]
        try:
            gofer = self._runsc.gofer_pid(self.box_id)
            await asyncio.to_thread(goferroot.change, gofer, root, binds)
        except (OSError, ValueError, KeyError) as error:
            raise Internal("the box cannot have another root", code="start_failed", detail=repr(error)) from error
        self._bundle = replace(self._bundle, root=root)

    async def start(self) -> None:
        await self._command("start", self.box_id)

    async def connect_guest(self) -> socket.socket:
        return await self._bundle.dial(self._bundle.guest_port)

    async def pause(self) -> None:
        if not await self._is_still():
            with meaning("the record of a box that stands still"):
                self._standing.moving()
                await sentrycall.call(self._runsc.control_socket(self.box_id), sentrycall.PAUSE)
                self._standing.still()

    async def resume(self) -> None:
        if await self._is_still():
            with contextlib.suppress(OSError):  # on a full disk it must go on all the same
                self._standing.moving()
            await sentrycall.call(self._runsc.control_socket(self.box_id), sentrycall.RESUME)
            self._standing.runs()

    async def _is_still(self) -> bool:
        still = self._standing.is_still()
        return still if still is not None else not await self._speaks()

    async def _speaks(self) -> bool:
        """Whether the guest answers anything at all, if only that this is no request. Asked after a kill -9 only."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(limits.STILL_S):
                with await self.connect_guest() as connection:
                    await loop.sock_sendall(connection, framing.encode(framing.CONTROL, b"{}"))
                    return bool(await loop.sock_recv(connection, 1))
        except (OSError, TimeoutError, AtollError):
            return False

    async def snapshot(self, target: Path, bulk_fd: int | None = None) -> None:
        if not self._runsc.spoken_to:
            await self._command("checkpoint", "--leave-running", "--image-path", str(target), self.box_id)
            return
        with checkpointfiles.created(target, bulk_fd) as fds:
            wish = {"metadata": {"compression": "none"}, "have_pages_file": True, "Resume": True}
            await self._sentry_call("checkpoint", sentrycall.CHECKPOINT, wish, fds)

    async def restore(self, source: Path, seen: Seen | None = None) -> None:
        if seen is not None and not (self._runsc.spoken_to and checkpointfiles.withholdable(source)):
            await seen.whole()
            seen = None
        if not self._runsc.spoken_to:
            bundle = ("--bundle", str(self._bundle.folder))
            await self._command("restore", *bundle, "--image-path", str(source), "--detach", self.box_id)
            return
        with netstack.link_open(self._bundle.netns) as link:
            await self._sentry_call("restore", sentrycall.NETWORK, netstack.arguments(link), [link.fileno()])
        if seen is not None:
            await self._restore_seen(source, seen)
            return
        with checkpointfiles.existing(source) as fds:
            await self._load(fds)

    async def _restore_seen(self, source: Path, seen: Seen) -> None:
        """While the pages are loaded they are looked at. What is parsed was looked at before, what lives was after."""
        await seen.but(checkpointfiles.PAGES)
        failures: list[Exception] = []
        with checkpointfiles.withheld(source) as files:

            async def load() -> None:
                try:
                    await self._load(files.fds)
                except AtollError as error:
                    failures.append(error)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(load)
                try:
                    await seen.whole()
                    files.give()
                except Exception as error:  # told below: a task group would hide it in a group
                    failures.insert(0, error)
                finally:
                    files.refuse()
        if failures:
            raise failures[0]

    async def _load(self, fds: Sequence[int]) -> None:
        # It lives as soon as the ranges are read, to their last byte; pages that it needs before their turn come first.
        await self._sentry_call("restore", sentrycall.RESTORE, {"HavePagesFile": True, "Background": True}, fds)

    async def _sentry_call(self, verb: str, method: str, arg: Mapping[str, Any], fds: Sequence[int]) -> None:
        """What the runsc program of this name would do, with its errors."""
        path = self._runsc.control_socket(self.box_id)
        try:
            await sentrycall.call(path, method, arg, fds, limits.HELPER_S_MAX)
        except Internal as error:
            raise _failure(verb, self._bundle.folder, error.detail) from error

    def console(self) -> str:
        return self._console.text() if self._console else ""

    async def wait_exited(self) -> None:
        await self._sentry.wait_exited()

    def alive(self) -> bool:
        return self._sentry.alive()

    def kill(self) -> None:
        # By its own handle: `runsc kill` would talk to the sentry, and a sick one does not answer.
        self._sentry.signal(signal.SIGKILL)

    async def destroy(self) -> None:
        self.kill()
        try:
            async with asyncio.timeout(limits.CGROUP_REMOVE_S_MAX):
                await self._sentry.wait_exited()
            self._runsc.forget(self.box_id)
        except TimeoutError:
            await self._runsc.discard(self.box_id, self._bundle.folder)
        self._sentry.close()
        if self._console:
            self._console.close()

    def record(self) -> BoxRecord:
        return BoxRecord(pid=self._sentry.pid, pid_started=self._sentry.started)

    async def _command(self, *command: str) -> None:
        await self._runsc.run(self._bundle.folder, command)


def _failure(verb: str, folder: Path, said: str) -> AtollError:
    detail = f"{said}\n{_log_tail(folder)}"
    if "no space left" in detail or "disk quota exceeded" in detail:
        return Unavailable("the disk pool is full", code="disk_pool_full", detail=detail)
    if "cannot allocate memory" in detail:
        return Unavailable("there is no memory for another sandbox", code="no_memory", detail=detail)
    return Internal(f"the runtime could not {verb} the sandbox", code="start_failed", detail=detail)


def _log_tail(folder: Path) -> str:
    try:
        with open(folder / "runsc.log", "rb") as file:
            size_bytes = file.seek(0, os.SEEK_END)
            file.seek(max(0, size_bytes - limits.HELPER_TAIL_BYTES))
            return file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
