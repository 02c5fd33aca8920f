"""Operations on processes: start, attach, list, signal, input, resize, wait, output."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from atoll.guest import users
from atoll.guest.channel import Channel
from atoll.guest.failure import Refused
from atoll.guest.following import Following
from atoll.guest.params import (
    Params,
    environment,
    flag,
    integer,
    optional_integer,
    record,
    resolve,
    seconds,
    text,
    texts,
)
from atoll.guest.processes import Process, Spec, signal_number
from atoll.guest.shells import shell_argv
from atoll.model import limits

if TYPE_CHECKING:
    from atoll.guest.agent import Agent

_BOUNDS = ("cpu_s", "memory_bytes", "open_files", "file_bytes")


def start(agent: Agent, params: Params, channel: Channel) -> None:
    detach = flag(params, "detach")

    def then(process: Process) -> None:
        if process.spec.shell:
            agent.shells.add(agent, process)
        if not detach:
            _following(agent, params, channel, process, {}).begin(_first("started", process, {}))

    if not detach:
        Following.check_room()  # before there is a program that nobody could follow
    process = agent.processes.start(_spec(agent, params), then)
    if detach:
        channel.send_ok(process.describe())


def attach(agent: Agent, params: Params, channel: Channel) -> None:
    process = agent.processes.find(params)
    offsets = {"stdout": integer(params, "stdout_offset", 0), "stderr": integer(params, "stderr_offset", 0)}
    if "tail_bytes" in params:  # a screen is restored from the newest bytes; older ones have scrolled away
        tail = integer(params, "tail_bytes")
        offsets = {name: max(ring.start, ring.end - tail) for name, ring in process.rings.items()}
    following = _following(agent, params, channel, process, offsets)
    agent.pump.call(lambda: following.begin(_first("attached", process, offsets)))


def _following(agent: Agent, params: Params, channel: Channel, process: Process, offsets: dict[str, int]) -> Following:
    kill = flag(params, "kill_on_disconnect")

    def on_leave() -> None:
        if kill and process.status is None:
            agent.processes.end(process)

    return Following(channel, process, agent.pump, offsets, until_now=flag(params, "until_now"), on_leave=on_leave)


def _first(kind: str, process: Process, offsets: dict[str, int]) -> Params:
    return {"type": kind, **process.describe(), "exit": None, "offsets": offsets}


def _spec(agent: Agent, params: Params) -> Spec:
    user = agent.user_of(params)
    size = _size(params)
    login = flag(params, "login")
    command = params.get("cmd")
    argv = texts(params, "argv")
    session = flag(params, "shell")
    shell = users.command_shell(user)
    if session:
        if command is not None or argv or size or flag(params, "stdin"):
            raise Refused("invalid_argument", "a session takes its commands later, and has neither terminal nor input")
        argv, login = shell_argv(login), False
    if command is not None and argv:
        raise Refused("invalid_argument", "give argv or cmd, not both")
    if command is not None:
        argv = [shell, *(["-l"] if login else []), "-c", text(params, "cmd")]
    elif not argv and size:
        argv = [shell, *(["-l"] if login else [])]
    elif not argv:
        raise Refused("invalid_argument", "give argv or cmd")
    elif login:
        argv = [shell, "-l", "-c", 'exec "$@"', shell, *argv]
    if not argv[0]:
        raise Refused("invalid_argument", "the program has no name")
    bounds = record(params, "limits")
    if not set(bounds) <= set(_BOUNDS):
        raise Refused("invalid_argument", f"limits may name {', '.join(_BOUNDS)}")
    return Spec(
        argv=argv,
        env={**users.base_environment(user, terminal=size is not None), **agent.env, **environment(params)},
        cwd=_cwd(params, user),
        user=user,
        tag=text(params, "tag", "", chars_max=limits.TAG_CHARS_MAX),
        size=size,
        stdin=flag(params, "stdin"),
        timeout_s=seconds(params, "timeout_s"),
        nice=integer(params, "nice", 0, low=-20, high=19),
        bounds={name: integer(bounds, name, low=1) for name in bounds},
        shell=session,
        brief=not (flag(params, "detach") or flag(params, "stdin") or size or session or params.get("nice")),
    )


def _cwd(params: Params, user: users.User) -> str:
    asked = text(params, "cwd", "")
    if asked:
        return resolve(asked, user.home, "cwd")
    return user.home if os.path.isdir(user.home) else "/"


def _size(params: Params) -> tuple[int, int] | None:
    if params.get("pty") in (None, False):
        return None
    pty = {} if params["pty"] is True else record(params, "pty")
    return integer(pty, "cols", 80, low=1, high=limits.TERMINAL_SIZE_MAX), integer(
        pty, "rows", 24, low=1, high=limits.TERMINAL_SIZE_MAX
    )


def list_all(agent: Agent, params: Params, channel: Channel) -> None:
    running_only = flag(params, "running")
    batch: list[Params] = []
    batch_chars = count = 0
    for process in agent.processes.all():
        if process.spec.hidden or (running_only and process.exit is not None):
            continue
        described = process.describe()
        batch.append(described)
        batch_chars += sum(len(part) + 1 for part in (*described["argv"], described["cwd"], described["tag"]))
        count += 1
        if len(batch) >= 64 or batch_chars > 32 * limits.KIB:  # a character is at most 12 bytes of JSON
            channel.send_event("entries", {"entries": batch})
            batch, batch_chars = [], 0
    if batch:
        channel.send_event("entries", {"entries": batch})
    channel.send_end({"count": count})


def show(agent: Agent, params: Params, channel: Channel) -> None:
    channel.send_ok(agent.processes.find(params).describe())


def send_signal(agent: Agent, params: Params, channel: Channel) -> None:
    """To a process that was started here, its group, or its whole tree; or to any other pid but the guest's own."""
    number = signal_number(params.get("signal", "TERM"))
    try:
        process = agent.processes.find(params)
    except Refused:
        pid = optional_integer(params, "pid", low=2, high=2**31 - 1)
        if pid is None or pid in agent.workers.own_pids():
            raise
        _signal_other(agent, params, pid, number)
        channel.send_ok({"pid": pid})
        return
    if flag(params, "tree"):
        agent.processes.signal_tree(process.pid, number, process.mark)
    else:
        process.signal(number, group=flag(params, "group"))
    channel.send_ok({"pid": process.pid})


def _signal_other(agent: Agent, params: Params, pid: int, number: int) -> None:
    """One that some program started: it may lead no group and no session, and has no mark."""
    if flag(params, "tree"):
        os.kill(pid, 0)  # that it is there
        agent.processes.signal_tree(pid, number)
    elif flag(params, "group"):
        group = os.getpgid(pid)
        if group == os.getpgrp():
            raise Refused("permission_denied", "that group is the guest's own")
        os.killpg(group, number)
    else:
        os.kill(pid, number)


def send_stdin(agent: Agent, params: Params, channel: Channel) -> None:
    """An upload that goes into a process's standard input; with `close`, that is then at its end.

    With `offset` it can be repeated: what the process has been given already is not given again.
    """
    process = agent.processes.find(params)
    skipped = process.stdin_bytes - integer(params, "offset", process.stdin_bytes)
    if skipped < 0:
        raise Refused("wrong_state", f"the next byte of its standard input is number {process.stdin_bytes}")
    stall_s = seconds(params, "timeout_s") or limits.TRANSFER_STALL_S_MAX
    count = 0
    for data in channel.read_upload():
        count += len(data)
        rest = memoryview(data)[skipped:]
        skipped -= len(data) - len(rest)
        process.write_stdin_all(rest, stall_s)
    if flag(params, "close"):
        process.close_stdin(by_caller=True)
    channel.send_ok({"written": count, "offset": process.stdin_bytes})


def resize(agent: Agent, params: Params, channel: Channel) -> None:
    process = agent.processes.find(params)
    process.resize(
        integer(params, "cols", low=1, high=limits.TERMINAL_SIZE_MAX),
        integer(params, "rows", low=1, high=limits.TERMINAL_SIZE_MAX),
    )
    channel.send_ok({})


def wait(agent: Agent, params: Params, channel: Channel) -> None:
    process = agent.processes.find(params)
    if not process.finished.wait(seconds(params, "timeout_s")):
        raise Refused("timeout", "the process has not ended yet")
    channel.send_ok(process.describe())


def output(agent: Agent, params: Params, channel: Channel) -> None:
    """What is kept of one stream from an offset on, without waiting for more."""
    process = agent.processes.find(params)
    name = text(params, "stream", "stdout")
    ring = process.rings.get(name)
    if ring is None:
        raise Refused("invalid_argument", "the process has no such stream")
    offset = integer(params, "offset", 0)
    end = min(ring.end, offset + integer(params, "length", limits.RING_BYTES_MAX))
    begin = min(max(offset, ring.start), ring.end)
    opened = {"offset": begin, "dropped": max(0, begin - offset), "end": ring.end, "exit": process.exit}
    channel.send_event("opened", opened)
    position = begin
    while position < end:
        position, data = ring.read(position, min(limits.PUMP_READ_BYTES, end - position))
        if not data:
            break
        channel.send_data(1 if name == "stdout" else 2, data)
        position += len(data)
    channel.send_end({"next_offset": position, "exit": process.exit})


def quiet(agent: Agent, _params: Params, channel: Channel) -> None:
    """How long ago any program printed something, whether or not anybody reads it."""
    channel.send_ok({"output_age_s": agent.processes.output_age_s()})
