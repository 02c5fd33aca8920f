"""E2B's `process.Process`: commands and terminals, translated to the guest's processes."""

from __future__ import annotations

import base64
from typing import Any, Final

import msgspec

from atoll.api.compat.e2b import connect, streaming
from atoll.api.compat.e2b.ask import Ask, Operation, without_none
from atoll.api.compat.e2b.connect import Envelopes, Failure
from atoll.api.stream import body_chunks
from atoll.api.v1 import guestwords
from atoll.control.service import Guest
from atoll.model import limits
from atoll.model.errors import Conflict, GuestFailed, InvalidArgument, NotFound, Unauthenticated
from atoll.wire import codec, framing, guest
from atoll.wire.node import GuestStream
from atoll.wire.public import ProcessExited

_KEEPALIVE: Final[dict[str, Any]] = {"event": {"keepalive": {}}}
_SIGNALS: Final = {"SIGNAL_SIGKILL": "KILL", "SIGNAL_SIGTERM": "TERM", 9: "KILL", 15: "TERM"}
_SIGNAL_NAMES: Final = {
    1: "hangup",
    2: "interrupt",
    6: "aborted",
    9: "killed",
    11: "segmentation fault",
    15: "terminated",
}


class Size(msgspec.Struct):
    cols: int = 80
    rows: int = 24


class Terminal(msgspec.Struct):
    size: Size = msgspec.field(default_factory=Size)


class Config(msgspec.Struct):
    cmd: str
    args: list[str] = []
    envs: dict[str, str] = {}
    cwd: str | None = None


class Selector(msgspec.Struct):
    pid: int | None = None
    tag: str | None = None

    def params(self) -> dict[str, Any]:
        if self.pid is None and self.tag is None:
            raise InvalidArgument("name the process by pid or tag")
        return {"pid": self.pid} if self.pid is not None else {"tag": self.tag}


class Start(msgspec.Struct):
    process: Config
    pty: Terminal | None = None
    tag: str | None = None
    stdin: bool | None = None


class Connect(msgspec.Struct):
    process: Selector


class Update(msgspec.Struct):
    process: Selector
    pty: Terminal | None = None


class Input(msgspec.Struct):
    stdin: bytes | None = None  # msgspec reads base64
    pty: bytes | None = None

    @property
    def data(self) -> bytes:
        return self.stdin if self.stdin is not None else self.pty or b""


class SendInput(msgspec.Struct):
    process: Selector
    input: Input = msgspec.field(default_factory=Input)


class SendSignal(msgspec.Struct):
    process: Selector
    signal: str | int = "SIGNAL_UNSPECIFIED"


class StreamStart(msgspec.Struct):
    process: Selector


class StreamData(msgspec.Struct):
    input: Input = msgspec.field(default_factory=Input)


class StreamInput(msgspec.Struct):
    start: StreamStart | None = None
    data: StreamData | None = None
    keepalive: dict[str, Any] | None = None


def start_params(asked: Start, user: str | None, timeout_s: float | None, sandbox_id: str) -> dict[str, Any]:
    """The guest's parameters; with no word about standard input E2B gives a process one."""
    config = asked.process
    return without_none(
        {
            "argv": [config.cmd, *config.args],
            "env": {"E2B_SANDBOX_ID": sandbox_id, **config.envs},
            "cwd": config.cwd or None,
            "user": user,
            "tag": asked.tag,
            "stdin": asked.stdin is not False,
            "timeout_s": timeout_s,
            "pty": msgspec.to_builtins(asked.pty.size) if asked.pty is not None else None,
        }
    )


def end_event(exited: ProcessExited) -> dict[str, Any]:
    """How a process ended, as Go's os/exec words it, which E2B's agent passes on."""
    if exited.signal:
        status = f"signal: {_SIGNAL_NAMES.get(exited.signal, exited.signal)}"
        words: dict[str, Any] = {"exitCode": -1, "exited": False, "status": status, "error": status}
    else:
        status = f"exit status {exited.exit_code}"
        words = {"exitCode": exited.exit_code, "exited": True, "status": status}
        if exited.exit_code:
            words["error"] = status
    return {"event": {"end": words}}


async def start(ask: Ask) -> None:
    asked = await streaming.asked(ask, Start)
    limit_s = connect.timeout_s(ask.header(b"connect-timeout-ms"))
    user = ask.user()
    params = start_params(asked, user, limit_s, ask.sandbox_id)
    inside = await ask.guest()

    async def events() -> streaming.Events:
        try:
            async with inside.stream("process.start", params) as stream:
                async for event in followed(stream, terminal=asked.pty is not None):
                    yield event
        except InvalidArgument as error:
            raise _start_refusal(error, user, asked.process.cwd) from error
        except NotFound as error:
            raise _start_refusal(error, user, asked.process.cwd) from error

    await streaming.send_events(ask, events(), _KEEPALIVE)


def _start_refusal(error: InvalidArgument | NotFound, user: str | None, cwd: str | None) -> Exception:
    """The refusals that E2B's agent has words of its own for."""
    if error.code == "unknown_user":
        return Unauthenticated(f"invalid username: '{user}'", code="unknown_user")
    if cwd and error.code in ("not_found", "not_directory"):
        return InvalidArgument(f"cwd '{cwd}' does not exist")
    return error


async def connect_to(ask: Ask) -> None:
    """Follow a process from now on; what it wrote before is not sent again."""
    selector = (await streaming.asked(ask, Connect)).process.params()
    limit_s = connect.timeout_s(ask.header(b"connect-timeout-ms"))
    inside = await ask.guest()

    async def events() -> streaming.Events:
        view = await _known(inside, selector)
        offsets = {name: _offset(view.get(name)) for name in ("stdout_offset", "stderr_offset")}
        async with inside.stream("process.attach", {**selector, **offsets}) as stream:
            async for event in followed(stream, terminal=view.get("pty") is True):
                yield event

    await streaming.send_events(ask, events(), _KEEPALIVE, limit_s)


def _offset(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value < 2**62 else 0


async def _known(inside: Guest, selector: dict[str, Any]) -> dict[str, Any]:
    """What is known of a process; also of one that has ended, whose exit can still be asked for."""
    async with inside.stream("process.list", {}) as stream:
        found = [entry async for entry in guestwords.entries(stream, limits.LIST_ENTRIES_MAX)]
    for entry in reversed(found):
        if isinstance(entry, dict) and all(entry.get(name) == value for name, value in selector.items()):
            return entry
    name, value = next(iter(selector.items()))
    raise NotFound(f"process with {name} {value} not found")


async def followed(stream: GuestStream, *, terminal: bool) -> streaming.Events:
    """The events of one process: start, data, end; the end of one that ran out of time is a failure."""
    begun = False
    async for message in stream:
        if isinstance(message, guest.Data) and begun:
            name = "pty" if terminal else "stderr" if message.kind == framing.STDERR else "stdout"
            yield {"event": {"data": {name: base64.b64encode(message.payload).decode("ascii")}}}
        elif isinstance(message, guest.Event):
            if not begun:
                yield {"event": {"start": {"pid": guestwords.started(message.value).pid}}}
            begun = True
        elif isinstance(message, guest.End) and begun:
            exited = guestwords.exited(message.value)
            yield streaming.DEADLINE if exited.timed_out else end_event(exited)
            return
        else:
            raise GuestFailed("the sandbox sent output out of turn")
    raise guestwords.ended_early()


async def list_all(ask: Ask) -> None:
    inside = await ask.guest()
    async with inside.stream("process.list", {"running": True}) as stream:
        found = [guestwords.process(entry) async for entry in guestwords.entries(stream, limits.LIST_ENTRIES_MAX)]
    processes = [
        without_none(
            {
                "config": {"cmd": view.argv[0], "args": view.argv[1:], "envs": {}, "cwd": view.cwd},
                "pid": view.pid,
                "tag": view.tag,
            }
        )
        for view in found
        if view.argv
    ]
    await ask.answer({"processes": processes})


async def update(ask: Ask) -> None:
    asked = await ask.body(Update)
    if asked.pty is not None:
        await (await ask.guest()).call(
            "process.resize", {**asked.process.params(), **msgspec.to_builtins(asked.pty.size)}
        )
    await ask.answer({})


async def send_input(ask: Ask) -> None:
    asked = await ask.body(SendInput)
    await _give(await ask.guest(), asked.process.params(), asked.input.data)
    await ask.answer({})


async def close_stdin(ask: Ask) -> None:
    asked = await ask.body(Connect)
    await _give(await ask.guest(), {**asked.process.params(), "close": True}, b"")
    await ask.answer({})


async def _give(inside: Guest, params: dict[str, Any], data: bytes) -> None:
    """What goes into a standard input at once."""
    async with inside.stream("process.stdin", params) as stream:
        if data:
            await stream.send(data)
        await stream.commit()
        async for message in stream:
            if isinstance(message, guest.Ok | guest.End):
                return
    raise guestwords.ended_early()


async def stream_input(ask: Ask) -> None:
    """Input in many messages: the first names the process, the others hold the bytes.

    What comes together is one operation inside. Between them none is open: a caller may be silent for as long as it
    likes, and the sandbox may be paused meanwhile.
    """
    envelopes = Envelopes()
    waiting: list[StreamInput] = []
    chunks = body_chunks(ask.receive)
    while not waiting:
        waiting = [codec.decode(item, StreamInput) for item in envelopes.feed(await anext(chunks, b"") or _no_start())]
    first = waiting.pop(0)
    if first.start is None:
        _no_start()
    assert first.start is not None
    inside, selector = await ask.guest(), first.start.process.params()
    await inside.call("process.show", selector)  # else one that is not there would be told with the first bytes only
    await _give_all(inside, selector, waiting)
    async for chunk in chunks:
        await _give_all(inside, selector, [codec.decode(item, StreamInput) for item in envelopes.feed(chunk)])
    body = connect.envelope({}) + connect.end()
    headers = [(b"content-type", connect.STREAM.encode("ascii"))]
    await ask.send({"type": "http.response.start", "status": 200, "headers": headers})
    await ask.send({"type": "http.response.body", "body": body})


def _no_start() -> bytes:
    raise InvalidArgument("the first message of an input stream names the process")


async def _give_all(inside: Guest, selector: dict[str, Any], messages: list[StreamInput]) -> None:
    data = b"".join(message.data.input.data for message in messages if message.data is not None)
    if data:
        await _give(inside, selector, data)


async def send_signal(ask: Ask) -> None:
    asked = await ask.body(SendSignal)
    name = _SIGNALS.get(asked.signal)
    if name is None:
        failure = Failure("unimplemented", f"invalid signal: {asked.signal}")
        await ask.answer(failure.body(), failure.status)
        return
    inside = await ask.guest()
    selector = asked.process.params()
    view = await _known(inside, selector)
    if view.get("exit") is not None:
        raise NotFound("the process has ended")
    try:
        # All that a killed command has started goes with it; nobody is left who would wait for it.
        await inside.call("process.signal", {**selector, "signal": name, "tree": name == "KILL"})
    except Conflict as error:
        raise NotFound(error.message) from error
    await ask.answer({})


_SERVICE: Final = "/process.Process/"

OPERATIONS: Final = (
    Operation("POST", _SERVICE + "List", list_all, reads=True),
    Operation("POST", _SERVICE + "Start", start),
    Operation("POST", _SERVICE + "Connect", connect_to, reads=True),
    Operation("POST", _SERVICE + "Update", update),
    Operation("POST", _SERVICE + "SendInput", send_input),
    Operation("POST", _SERVICE + "StreamInput", stream_input),
    Operation("POST", _SERVICE + "SendSignal", send_signal),
    Operation("POST", _SERVICE + "CloseStdin", close_stdin),
)
