"""What node and guest say to each other: requests, replies, error codes and the guest's command line.

One connection carries one operation. The first frame is a request, `{"op": NAME, "token": TOKEN, ...parameters}`. The
guest answers with control frames, each with exactly one of these keys, and with data frames between them:

    {"ok": {...}}                              the one reply of an operation without a stream
    {"event": {"type": ..., ...}}              something on the way
    {"end": {...}}                             the last frame of a stream that came to its end
    {"error": {"code": ..., "message": ...}}   the last frame of an operation that failed

While a process is followed the client may send INPUT frames (standard input) and `{"do": "close_stdin"}`,
`{"do": "resize", "cols": ..., "rows": ...}`, `{"do": "signal", "signal": ..., "group": ...}`. An upload is INPUT
frames and then `{"do": "commit"}`; a connection that ends without it changes nothing.

JSON is ASCII: names that are not UTF-8 travel as surrogate escapes and arrive as the same bytes.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from atoll.wire import framing

INCOMING_FOLDER = "/.atoll/incoming"
"""Of a sandbox's disk: where the node puts large uploads for the guest to move to their place."""

LINE_REST, LINE_LOOK = b"r", b"l"
"""On the line that `memory.lease` opens: the memory's guard may rest, or it looks itself. The guest answers each with
the number of its processes, in decimal, and a newline.
"""

# What waits for something that may never happen: a program's next word or its end, a change, a port.
SILENT_OPS = frozenset(
    {"process.start", "process.attach", "process.wait", "shell.run", "file.watch", "ports.watch", "ports.wait"}
)

# The codes that a guest may report; a node takes no others for real.
ERROR_CODES = frozenset(
    {
        "busy",
        "disk_full",
        "exists",
        "internal",
        "invalid_argument",
        "is_directory",
        "no_such_process",
        "no_such_program",
        "not_directory",
        "not_empty",
        "not_found",
        "permission_denied",
        "quota",
        "read_only",
        "timeout",
        "too_large",
        "too_many_processes",
        "unauthenticated",
        "unknown_op",
        "unknown_user",
        "unsafe_archive",
        "unsupported",
        "wrong_state",
    }
)


class MessageError(ValueError):
    """A control frame that is not one of ours."""


@dataclass(frozen=True, slots=True)
class Ok:
    value: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Event:
    value: dict[str, Any]
    size_bytes: int = field(default=0, compare=False)
    """Of the frame it came in: who keeps what many events say counts by this."""


@dataclass(frozen=True, slots=True)
class End:
    value: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Failure:
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Data:
    kind: int
    payload: bytes


Message = Ok | Event | End | Failure | Data


def token_hash(token: str) -> str:
    """What a guest holds of its token: enough to recognise it, too little to use it."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def control(value: dict[str, Any]) -> bytes:
    """A whole control frame."""
    return framing.encode(framing.CONTROL, json.dumps(value, separators=(",", ":")).encode("ascii"))


def request(op: str, token: str, params: dict[str, Any]) -> bytes:
    return control({**params, "op": op, "token": token})


def parse_control(payload: bytes) -> dict[str, Any]:
    """The object in a control frame; MessageError for anything else, however it is broken."""
    try:
        value = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise MessageError("a control frame does not hold JSON") from error
    if not isinstance(value, dict):
        raise MessageError("a control frame does not hold an object")
    return value


def parse_reply(frame: framing.Frame) -> Message:
    """What a frame from a guest means."""
    if frame.kind in (framing.STDOUT, framing.STDERR, framing.OUTPUT):
        return Data(frame.kind, frame.payload)
    if frame.kind != framing.CONTROL:
        raise MessageError(f"a guest does not send frames of kind {frame.kind}")
    value = parse_control(frame.payload)
    if len(value) != 1:
        raise MessageError("a reply has exactly one key")
    ((key, body),) = value.items()
    if not isinstance(body, dict):
        raise MessageError("the body of a reply is an object")
    if key == "error":
        code, message = body.get("code"), body.get("message")
        if not isinstance(code, str) or not isinstance(message, str):
            raise MessageError("an error has a code and a message")
        return Failure(code, message)
    if key == "event":
        return Event(body, len(frame.payload))
    kinds: dict[str, type[Ok] | type[End]] = {"ok": Ok, "end": End}
    if key not in kinds:
        raise MessageError("a reply of a kind that is not known")
    return kinds[key](body)


def boot_argv(
    python: list[str],
    app_dir: str,
    *,
    port: int,
    token_sha256: str,
    address: str = "0.0.0.0",  # noqa: S104 - the only interface of a sandbox leads to its own outer namespace
    user: str = "user",
    peer: str = "",
    processes_max: int = 0,
) -> list[str]:
    """The guest's command line.

    `python` starts an interpreter (loader and library path included). With `peer` the guest talks to that address
    only, so that programs inside the sandbox cannot take up its connections. `processes_max` is the bound per user, 0
    for none.
    """
    argv = [*python, "-I", "-S", "-B", "-X", "utf8", "-W", "ignore", f"{app_dir}/atoll/guest/__main__.py"]
    argv += ["--address", address, "--port", str(port), "--token-hash", token_sha256, "--user", user]
    if peer:
        argv += ["--peer", peer]
    if processes_max:
        argv += ["--processes-max", str(processes_max)]
    return argv


def runtime_python(runtime_dir: str, loader: str = "ld-linux-x86-64.so.2") -> list[str]:
    """How the interpreter in a runtime folder is started in a root that may have no C library of its own."""
    lib = f"{runtime_dir}/lib"
    return [f"{lib}/{loader}", "--library-path", lib, f"{runtime_dir}/bin/python3"]
