"""What comes of code, without I/O: lines in, events out, and the execution that they add up to."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field

import msgspec

from atoll.client._exchange import problem_error
from atoll.model import limits
from atoll.model.errors import CodeFailed, ConnectionFailed, Internal
from atoll.wire.public import (
    EvaluationView,
    ExecutionCleared,
    ExecutionEnded,
    ExecutionError,
    ExecutionEvent,
    ExecutionKeepalive,
    ExecutionOutput,
    ExecutionResult,
    ExecutionStarted,
    StreamFailed,
)

_EVENT = msgspec.json.Decoder(ExecutionEvent)
CodeEvent = ExecutionOutput | ExecutionResult | ExecutionCleared | ExecutionError | ExecutionEnded
_PICTURES = ("png", "jpeg", "svg", "pdf")


@dataclass(slots=True)
class Execution:
    """What code wrote, showed and gave.

    `results` are in order; the one marked `main` is the value of the last expression, and `text` is its text. `error`
    says why it failed; `status` is `ok`, `error`, `interrupted`, `timed_out` or `died`.
    """

    id: str = ""
    context: str = ""
    stdout: str = ""
    stderr: str = ""
    results: list[ExecutionResult] = field(default_factory=list)
    error: ExecutionError | None = None
    status: str = "running"
    execution_count: int | None = None
    exit_code: int | None = None
    duration_s: float = 0.0
    truncated: bool = False

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    @property
    def text(self) -> str | None:
        """The value of the last expression, as text; None if it has none."""
        return next((result.text for result in reversed(self.results) if result.main), None)

    def checked(self) -> Execution:
        """Itself if the code succeeded; else CodeFailed."""
        return checked(self)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What came of code that ran in a sandbox of its own, with the files that it left."""

    stdout: str
    stderr: str
    exit_code: int
    status: str
    results: list[ExecutionResult]
    error: ExecutionError | None
    files: dict[str, bytes]
    files_left_out: list[str]
    duration_s: float
    truncated: bool

    @classmethod
    def of(cls, view: EvaluationView) -> Evaluation:
        return cls(**{name: getattr(view, name) for name in view.__struct_fields__})

    @property
    def ok(self) -> bool:
        return self.status == "ok" and self.exit_code == 0

    @property
    def text(self) -> str | None:
        """The value of the last expression, as text; None if it has none."""
        return next((result.text for result in reversed(self.results) if result.main), None)


def checked(execution: Execution) -> Execution:
    if execution.ok:
        return execution
    error = execution.error
    words = f"{error.name}: {error.value[:500]}" if error else execution.status
    raise CodeFailed(f"the code failed ({execution.status}): {words}", result=execution)


def pictures(result: ExecutionResult) -> list[tuple[str, bytes]]:
    """The forms of a result that are files: their ending, and their bytes."""
    found = []
    for kind in _PICTURES:
        value = getattr(result, kind)
        if isinstance(value, str):
            found.append((kind, value.encode() if kind == "svg" else base64.b64decode(value, validate=False)))
    return found


class CodeReader:
    """Reads the stream of one execution, across connections: it knows how many events it has seen."""

    def __init__(self) -> None:
        self.execution = Execution()
        self.seen = 0
        self._buffer = bytearray()
        self._to_clear = False

    def connected(self) -> None:
        """A new connection begins: half a line of the last one is void, and will be sent again."""
        self._buffer.clear()

    def feed(self, data: bytes) -> list[CodeEvent]:
        self._buffer += data
        if len(self._buffer) > limits.EXECUTION_LINE_BYTES_MAX:
            raise Internal("the server's stream has a line over its bound", code="bad_answer")
        *lines, rest = bytes(self._buffer).split(b"\n")
        self._buffer = bytearray(rest)
        try:
            events = [self._event(_EVENT.decode(line)) for line in lines if line]
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Internal("the server's stream cannot be read", code="bad_answer", detail=str(error)) from None
        return [event for event in events if event is not None]

    def check_complete(self) -> None:
        if self.execution.status == "running":
            raise ConnectionFailed("the stream ended before the code did", code="connection_lost")

    def _event(self, event: ExecutionEvent) -> CodeEvent | None:
        if isinstance(event, StreamFailed):
            raise problem_error(event.problem)
        if isinstance(event, ExecutionStarted):
            self.execution.id, self.execution.context = event.id, event.context
            return None
        if isinstance(event, ExecutionKeepalive):
            return None
        self.seen += 1
        self._add(event)
        return event

    def _add(self, event: CodeEvent) -> None:
        made = self.execution
        if isinstance(event, ExecutionCleared):
            self._to_clear = True
        if self._to_clear and not (isinstance(event, ExecutionCleared) and event.wait):
            made.stdout = made.stderr = ""
            made.results.clear()
            self._to_clear = False
        if isinstance(event, ExecutionOutput):
            setattr(made, event.stream, getattr(made, event.stream) + event.text)
        elif isinstance(event, ExecutionResult):
            self._show(event)
        elif isinstance(event, ExecutionError):
            made.error = event
        elif isinstance(event, ExecutionEnded):
            for name in ("status", "execution_count", "exit_code", "duration_s", "truncated"):
                setattr(made, name, getattr(event, name))

    def _show(self, event: ExecutionResult) -> None:
        """A new result; or the new look of one that is shown already, here or by code that ran before."""
        results = self.execution.results
        places = [place for place, old in enumerate(results) if event.update and old.display_id == event.display_id]
        for place in places:
            results[place] = event
        if not places:
            results.append(event)
