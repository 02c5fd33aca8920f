"""What makes this sandbox itself: its token, environment, name and machine id; all change when it gets its owner."""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import re
import socket
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

from atoll.guest import trust
from atoll.guest.channel import Channel
from atoll.guest.failure import Refused
from atoll.guest.params import Params, environment, integer, text
from atoll.model import limits

if TYPE_CHECKING:
    from atoll.guest.agent import Agent

_STARTED_S = time.monotonic()
_HEX_64 = re.compile(r"[0-9a-f]{64}\Z")
_HEX_32 = re.compile(r"[0-9a-f]{32}\Z")
_HOSTNAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,62}[A-Za-z0-9])?\Z")


def info(agent: Agent, _params: Params, channel: Channel) -> None:
    channel.send_ok(
        {
            "hostname": socket.gethostname(),
            "kernel": platform.release(),
            "machine": platform.machine(),
            "python": ".".join(map(str, sys.version_info[:3])),
            "pid": os.getpid(),
            "uptime_s": round(time.monotonic() - _STARTED_S, 3),
            "clock": time.time(),
            "user": agent.settings.user,
            "operations": sorted(agent.ops),
            "oom_kills": agent.memory.kills,
        }
    )


def show_environment(agent: Agent, _params: Params, channel: Channel) -> None:
    """What every process gets, beside what its template and its caller give it."""
    channel.send_ok({"env": dict(agent.env)})


def change(agent: Agent, params: Params, channel: Channel) -> None:
    """All values are checked before the first is set. The new token counts from the next connection on.

    What nobody can see before the next operation is done after the answer, so that nobody waits for a disk; and that
    operation waits for it. The answer says whether interpreters are not warm any more, which they are made again when
    the node says so.
    """
    token_hash = text(params, "token_hash", agent.token_hash)
    hostname = text(params, "hostname", "")
    machine_id = text(params, "machine_id", "")
    user = text(params, "user", agent.settings.user)
    processes_max = integer(params, "processes_max", agent.workers.processes_max, high=limits.PIDS_MAX)
    env = environment(params) if "env" in params else agent.env
    for pattern, value, name in (
        (_HEX_64, token_hash, "token_hash"),
        (_HOSTNAME, hostname, "hostname"),
        (_HEX_32, machine_id, "machine_id"),
    ):
        if value and not pattern.match(value):
            raise Refused("invalid_argument", f"{name} is not well formed")
    agent.workers.set_processes_max(processes_max)
    agent.settings.user = user
    agent.env = dict(env)
    copied = params.get("copied") is not False
    for draw_again in agent.reseed:
        draw_again(copied)
    if copied:
        names_take(hostname, machine_id)
    agent.token_hash = token_hash
    said = {"cold": bool(agent.contexts.cold())}
    rest = partial(_settle, agent, "" if copied else hostname, "" if copied else machine_id)
    agent.settling.begin(rest, lambda: channel.send_ok(said))


def _settle(agent: Agent, hostname: str, machine_id: str) -> None:
    """A root filesystem that cannot be written to does not keep a sandbox from its owner."""
    trust.forget()  # who was copied had an authority of its own; ours comes with the network
    agent.processes.forget_finished()
    for names in ((hostname, ""), ("", machine_id)):
        with contextlib.suppress(Refused):
            names_take(*names)


def names_take(hostname: str, machine_id: str, folder: str = "/etc") -> None:
    """Refused is a copy that would go by the names of another: on a full disk, or where a program is in the way."""
    try:
        if hostname:
            socket.sethostname(hostname)
            _write(f"{folder}/hostname", hostname)
        if machine_id:
            _write(f"{folder}/machine-id", machine_id)
    except OSError as error:
        words = f"its name or machine id cannot be written: {error.strerror}"
        raise Refused("reseed_failed", words) from error


def _write(path: str, line: str) -> None:
    """All of it or nothing: half a name would be nobody's."""
    content = line.encode() + b"\n"
    fresh = f"{path}.{os.urandom(6).hex()}"
    fd = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        os.fchmod(fd, 0o644)  # whatever the umask
        os.write(fd, content)
        if os.pread(fd, len(content), 0) != content:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.rename(fresh, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(fresh)
        raise
    finally:
        os.close(fd)
