"""What comes out of a process, without I/O: frames in, events out, and the result that they add up to."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from atoll.client._exchange import problem_error
from atoll.model import limits
from atoll.model.errors import CommandFailed, ConnectionFailed, Internal
from atoll.wire import framing
from atoll.wire.public import ProcessDropped, ProcessExited, ProcessStarted, StreamFailed

StreamName = Literal["stdout", "stderr"]


@dataclass(frozen=True, slots=True)
class Output:
    """What a process wrote: the bytes, the same as text, and where they stand in the stream."""

    stream: StreamName
    data: bytes
    text: str
    offset: int


Event = Output | ProcessDropped | ProcessExited
_Control = ProcessStarted | ProcessDropped | ProcessExited | StreamFailed
_CONTROL = msgspec.json.Decoder(_Control)
_STREAMS: dict[int, StreamName] = {framing.STDOUT: "stdout", framing.STDERR: "stderr"}


class EventReader:
    """Reads the stream of one process, across connections: it knows where the next one has to go on."""

    def __init__(self, process_id: str = "", pid: int = 0) -> None:
        self.process_id = process_id
        self.pid = pid
        self.exited: ProcessExited | None = None
        self.offsets: dict[str, int] = {"stdout": 0, "stderr": 0}
        self._frames = framing.Decoder()
        # A character may be cut between two frames, even between two connections.
        self._text = {name: codecs.getincrementaldecoder("utf-8")("replace") for name in ("stdout", "stderr")}

    def connected(self) -> None:
        """A new connection begins: what was left of a frame on the last one is void, and will be sent again."""
        self._frames = framing.Decoder()

    def feed(self, data: bytes) -> list[Event]:
        try:
            frames = self._frames.feed(data)
            events = [self._event(frame) for frame in frames]
        except (framing.FrameError, msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Internal("the server's stream cannot be read", code="bad_answer", detail=str(error)) from None
        return [event for event in events if event is not None]

    def check_complete(self) -> None:
        """The connection ended: right if the process did, else the rest is missing."""
        if self.exited is None:
            raise ConnectionFailed("the stream ended before the process did", code="connection_lost")

    def _event(self, frame: framing.Frame) -> Event | None:
        name = _STREAMS.get(frame.kind)
        if name is not None:
            return self._output(name, frame.payload)
        if frame.kind != framing.CONTROL:
            return None  # a newer server may have more to say
        message: _Control = _CONTROL.decode(frame.payload)
        if isinstance(message, StreamFailed):
            raise problem_error(message.problem)
        if isinstance(message, ProcessStarted):
            self.process_id, self.pid = message.id, message.pid
            return None
        if isinstance(message, ProcessDropped):
            self.offsets[message.stream] = message.offset + message.length
        else:
            self.exited = message
        return message

    def _output(self, name: StreamName, data: bytes) -> Output:
        offset = self.offsets[name]
        self.offsets[name] = offset + len(data)
        return Output(name, data, self._text[name].decode(data), offset)


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command ended and what it wrote.

    `signal` is the number of the signal that ended it, if one did. `timed_out` and `oom` say who sent it: its time
    limit, or the guard against running out of memory. `truncated` says that some output is missing here.
    """

    stdout_bytes: bytes
    stderr_bytes: bytes
    exit_code: int
    signal: int | None = None
    timed_out: bool = False
    oom: bool = False
    duration_s: float = 0.0
    truncated: bool = False

    @property
    def stdout(self) -> str:
        return self.stdout_bytes.decode("utf-8", "replace")

    @property
    def stderr(self) -> str:
        return self.stderr_bytes.decode("utf-8", "replace")

    @property
    def ok(self) -> bool:
        return self.exit_code == 0

    def checked(self, cmd: str | Sequence[str]) -> CommandResult:
        """Itself if the command succeeded; else CommandFailed."""
        if self.ok:
            return self
        line = cmd if isinstance(cmd, str) else " ".join(cmd)
        last = self.stderr.rstrip().rpartition("\n")[2]
        raise CommandFailed(
            f"{line[:200]!r} {self._ending()}" + (f": {last[:500]}" if last else ""),
            result=self,
            hint="The exception's `result` has all of its output.",
        )

    def _ending(self) -> str:
        if self.timed_out:
            return f"was ended at its time limit, after {self.duration_s:.1f} s"
        if self.oom:
            return "was ended because memory ran out"
        if self.signal is not None:
            return f"was ended by signal {self.signal}"
        return f"ended with exit code {self.exit_code}"


class Collector:
    """Adds events up to a result. What is over the bound is dropped, not held: a sandbox may write without end."""

    def __init__(self, output_bytes_max: int = limits.COMMAND_OUTPUT_BYTES_MAX) -> None:
        self._output_bytes_max = output_bytes_max
        self._kept = {"stdout": bytearray(), "stderr": bytearray()}
        self._truncated = False

    def add(self, event: Event) -> None:
        if isinstance(event, Output):
            kept = self._kept[event.stream]
            room = self._output_bytes_max - len(kept)
            kept += event.data[:room]
            self._truncated |= len(event.data) > room
        elif isinstance(event, ProcessDropped):
            self._truncated = True

    def result(self, exited: ProcessExited) -> CommandResult:
        return CommandResult(
            stdout_bytes=bytes(self._kept["stdout"]),
            stderr_bytes=bytes(self._kept["stderr"]),
            exit_code=exited.exit_code,
            signal=exited.signal,
            timed_out=exited.timed_out,
            oom=exited.oom,
            duration_s=exited.duration_s,
            truncated=self._truncated,
        )
