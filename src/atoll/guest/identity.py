"""What makes this sandbox itself: its token, environment, name and machine id; all change when it gets its owner."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import socket
import sys
import time
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
    for draw_again in agent.reseed:
        draw_again(params.get("copied") is not False)
    agent.token_hash = token_hash
    said = {"cold": bool(agent.contexts.cold())}
    agent.settling.begin(lambda: _settle(agent, hostname, machine_id), lambda: channel.send_ok(said))


def _settle(agent: Agent, hostname: str, machine_id: str) -> None:
    """A root filesystem that cannot be written to does not keep a sandbox from its owner."""
    trust.forget()  # who was copied had an authority of its own; ours comes with the network
    agent.processes.forget_finished()
    if hostname:
        _set_hostname(hostname)
    if machine_id:
        _write("/etc/machine-id", machine_id)


def _set_hostname(name: str) -> None:
    with contextlib.suppress(OSError):
        socket.sethostname(name)
    _write("/etc/hostname", name)


def _write(path: str, line: str) -> None:
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            os.write(fd, line.encode() + b"\n")
        finally:
            os.close(fd)
