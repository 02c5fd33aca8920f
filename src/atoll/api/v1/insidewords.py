"""What a guest says about terminals, sessions, ports and use, turned into public answers; believed only if it fits."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from atoll.api.v1.guestwords import moment
from atoll.model import limits
from atoll.model.resources import Resources
from atoll.model.usage import Sample
from atoll.wire import codec
from atoll.wire.public import MetricsView, OomEnded, PortClosed, PortView, ProcessUsage, ShellExited

_Text = Annotated[str, Meta(max_length=limits.PATH_BYTES_MAX)]
_Pid = Annotated[int, Meta(ge=0, le=2**31 - 1)]
_Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Seconds = Annotated[float, Meta(ge=0, le=1e12)]
_Port = Annotated[int, Meta(ge=0, le=65535)]


class Attached(msgspec.Struct):
    id: Annotated[str, Meta(min_length=1, max_length=64)]
    pid: _Pid
    offsets: dict[str, _Count] = {}
    pty: bool = False


class _ShellExit(msgspec.Struct):
    code: Annotated[int, Meta(ge=-255, le=1024)]
    timed_out: bool
    oom: bool
    duration_s: _Seconds
    signal: Annotated[int, Meta(ge=0, le=128)] | None = None
    ended: bool = False
    cwd: _Text = ""


class _Listening(msgspec.Struct):
    address: Annotated[str, Meta(max_length=64)]
    port: _Port
    pid: _Pid | None = None
    process: Annotated[str, Meta(max_length=64)] | None = None


class _Ports(msgspec.Struct):
    ports: Annotated[list[_Listening], Meta(max_length=4096)]


class _OomEnded(msgspec.Struct):
    at: Annotated[float, Meta(ge=0, le=253_000_000_000)]
    pid: _Pid
    name: Annotated[str, Meta(max_length=64)]
    memory_bytes: _Count


class _Metrics(msgspec.Struct):
    at: Annotated[float, Meta(ge=0, le=253_000_000_000)]
    cpu_count: Annotated[int, Meta(ge=1, le=65536)]
    load: Annotated[list[float], Meta(max_length=3)]
    memory_total_bytes: _Count
    memory_available_bytes: _Count
    disk_available_bytes: _Count
    processes: _Count
    threads: _Count
    network_received_bytes: _Count
    network_sent_bytes: _Count
    oom_kills: _Count
    oom_ended: Annotated[list[_OomEnded], Meta(max_length=limits.MEMORY_KILLS_KEPT)] = []


class _Usage(msgspec.Struct):
    pid: _Pid
    parent: _Pid
    name: Annotated[str, Meta(max_length=64)]
    command: Annotated[str, Meta(max_length=512)]
    state: Annotated[str, Meta(max_length=4)]
    cpu_s: _Seconds
    memory_bytes: _Count
    threads: _Count
    own: bool
    uid: Annotated[int, Meta(ge=0, le=2**32 - 1)] | None = None


def attached(value: Any) -> Attached:
    return codec.from_guest(value, Attached)


def shell_exited(value: Any) -> ShellExited:
    words = codec.from_guest(value, _ShellExit)
    return ShellExited(
        exit_code=words.code,
        signal=words.signal,
        timed_out=words.timed_out,
        oom=words.oom,
        duration_s=words.duration_s,
        ended=words.ended,
        cwd=words.cwd,
    )


def _port(words: _Listening) -> PortView:
    return PortView(address=words.address, port=words.port, pid=words.pid, process=words.process)


def port(value: Any) -> PortView:
    return _port(codec.from_guest(value, _Listening))


def ports(value: Any) -> list[PortView]:
    return [_port(words) for words in codec.from_guest(value, _Ports).ports]


def port_closed(value: Any) -> PortClosed:
    words = codec.from_guest(value, _Listening)
    return PortClosed(address=words.address, port=words.port)


def metrics(value: Any, resources: Resources, used: Sample) -> MetricsView:
    """What the sandbox says; but CPU time, which it does not count for programs that are gone, and its share of the
    disk, which it does not know, are the machine's words.
    """
    words = codec.from_guest(value, _Metrics)
    return MetricsView(
        at=moment(words.at),
        cpu_count=words.cpu_count,
        cpu_s=used.cpu_s,
        load=words.load,
        memory_total_bytes=words.memory_total_bytes,
        memory_available_bytes=words.memory_available_bytes,
        disk_total_bytes=resources.disk_bytes,
        disk_available_bytes=max(0, min(resources.disk_bytes - used.disk_bytes, words.disk_available_bytes)),
        processes=words.processes,
        threads=words.threads,
        network_received_bytes=words.network_received_bytes,
        network_sent_bytes=words.network_sent_bytes,
        oom_kills=words.oom_kills,
        oom_ended=[
            OomEnded(at=moment(ended.at), pid=ended.pid, name=ended.name, memory_bytes=ended.memory_bytes)
            for ended in words.oom_ended
        ],
    )


def process_usage(value: Any) -> ProcessUsage | None:
    """None for what is the guest itself: nobody started it, and nobody may end it."""
    words = codec.from_guest(value, _Usage)
    if words.own:
        return None
    return ProcessUsage(
        pid=words.pid,
        parent=words.parent,
        name=words.name,
        command=words.command,
        state=words.state,
        uid=words.uid,
        cpu_s=words.cpu_s,
        memory_bytes=words.memory_bytes,
        threads=words.threads,
    )
