"""What the guest says to an interpreter and hears from it, without I/O; everything heard is hostile.

Most runners speak frames: kind 0 is JSON, 1 and 2 are output, 4 is a result. Bash speaks for itself: it is an
interactive shell whose commands come over the connection, and which says how each one ended.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, field
from typing import Any, Protocol

from atoll.guest.contexts_execution import Request
from atoll.guest.runners import reseeding
from atoll.model import limits
from atoll.wire import framing

_WORDS_MAX = 128 * limits.KIB  # of an error's parts; our own runners cut earlier


class Broken(Exception):
    """What came is not of the protocol: the interpreter cannot be trusted to say how things stand."""


@dataclass(frozen=True, slots=True)
class Heard:
    """One message of an interpreter."""

    kind: str  # ready, output, result, cleared, error, done, reseeded
    stream: int = 0
    payload: bytes = b""
    words: dict[str, Any] = field(default_factory=dict)


class Language(Protocol):
    def hello(self) -> bytes: ...
    def run(self, ident: str, request: Request, base_env: dict[str, str]) -> bytes: ...
    def interrupt(self, ident: str) -> bytes: ...
    def reseed(self) -> bytes: ...
    def warm(self) -> bytes: ...
    def feed(self, data: bytes) -> list[Heard]: ...


def protocol(name: str) -> Language:
    return Bash() if name == "bash" else Frames()


class Frames:
    def __init__(self) -> None:
        self._decoder = framing.Decoder(limits.EXECUTION_RESULT_BYTES_MAX + limits.MIB)

    def hello(self) -> bytes:
        return b""

    def run(self, ident: str, request: Request, base_env: dict[str, str]) -> bytes:
        given = {"env": request.env, "base_env": base_env, "stdin": request.stdin}
        return self._encode({"do": "run", "id": ident, "code": request.code, **given})

    def interrupt(self, ident: str) -> bytes:
        """Beside the signal, for an interpreter that has not begun yet and would take the signal for an old one."""
        return self._encode({"do": "interrupt", "id": ident})

    def reseed(self) -> bytes:
        return self._encode({"do": "reseed"})

    def warm(self) -> bytes:
        return self._encode({"do": "warm"})

    def _encode(self, message: dict[str, Any]) -> bytes:
        body = json.dumps(message, separators=(",", ":")).encode("ascii")
        return framing.HEADER.pack(len(body), framing.CONTROL) + body

    def feed(self, data: bytes) -> list[Heard]:
        try:
            return [self._heard(frame) for frame in self._decoder.feed(data)]
        except (framing.FrameError, ValueError, RecursionError, TypeError) as error:
            raise Broken(str(error)[:200]) from error

    def _heard(self, frame: framing.Frame) -> Heard:
        if frame.kind in (framing.STDOUT, framing.STDERR):
            return Heard("output", frame.kind, frame.payload)
        if frame.kind == framing.OUTPUT:
            if len(frame.payload) > limits.EXECUTION_RESULT_BYTES_MAX:
                raise Broken("a result over its bound")
            return Heard("result", payload=frame.payload)
        if frame.kind != framing.CONTROL:
            raise Broken(f"a frame of kind {frame.kind}")
        words = json.loads(frame.payload)
        if not isinstance(words, dict):
            raise Broken("a message that is no object")
        kind = words.get("type")
        if kind not in ("ready", "cleared", "error", "done", "reseeded"):
            raise Broken("a message of no known type")
        return Heard(kind, words=checked(kind, words))


def checked(kind: str, words: dict[str, Any]) -> dict[str, Any]:
    """Only the fields that a message of this kind has, each of its type and within its bound."""
    if kind == "error":
        return {name: str(words.get(name, ""))[:_WORDS_MAX] for name in ("name", "value", "traceback")}
    if kind == "cleared":
        return {"wait": words.get("wait") is True}
    if kind == "done":
        count, code = words.get("count"), words.get("exit_code")
        return {
            "count": count if isinstance(count, int) and 0 <= count < 2**53 else None,
            "exit_code": code & 0xFF if isinstance(code, int) else 1,
        }
    return {}


class Bash:
    """`bash -i`: only an interactive shell goes back to its prompt at an interrupt, with all its variables."""

    # Descriptor 3 is the connection, and standard input of what runs is empty. What follows the code comes on lines of
    # its own, because an interrupt throws the rest of a line away. A copy of a busy shell draws again at a signal,
    # which it takes note of between two commands.
    DRAW = "RANDOM=$(od -An -N2 -tu2 /dev/urandom)"
    HELLO = f"PS1= PS2= PROMPT_COMMAND=; set +H; exec 3<&0; trap '{DRAW}' {reseeding.SIGNAL:d}; printf 'ready\\0' >&3\n"

    def __init__(self) -> None:
        self._buffer = b""
        self._count = 0

    def hello(self) -> bytes:
        return self.HELLO.encode()

    def interrupt(self, ident: str) -> bytes:  # noqa: ARG002 - the signal is all that a shell understands
        return b""

    def run(self, ident: str, request: Request, base_env: dict[str, str]) -> bytes:  # noqa: ARG002
        self._count += 1
        names = [name for name in request.env if _is_settable(name)]
        lines = [f"export {name}={shlex.quote(value)}" for name, value in base_env.items() if _is_settable(name)]
        for name in names:
            lines.append(f"__atoll_had_{name}=${{{name}+x}} __atoll_old_{name}=${{{name}-}}")
            lines.append(f"export {name}={shlex.quote(request.env[name])}")
        # A shell cannot hold a NUL byte at all; without it the rest of the code is what it was.
        code = shlex.quote(request.code.replace("\0", ""))
        setting = "".join(f"{line}\n" for line in lines)
        feed = "</dev/null" if request.stdin is None else f"<<< {_here(request.stdin)}"
        text = f"{setting}eval {code} {feed}\n__atoll_status=$?\n"
        for name in names:
            text += (
                f'if [ -n "$__atoll_had_{name}" ]; then export {name}="$__atoll_old_{name}"; else unset {name}; fi; '
                f"unset __atoll_had_{name} __atoll_old_{name}\n"
            )
        text += "printf 'done %s\\0' \"$__atoll_status\" >&3\n"
        return text.encode("utf-8", "replace")

    def reseed(self) -> bytes:
        return f"{self.DRAW}; printf 'reseeded\\0' >&3\n".encode()

    def warm(self) -> bytes:
        return b""

    def feed(self, data: bytes) -> list[Heard]:
        *records, self._buffer = (self._buffer + data).split(b"\0")
        if len(self._buffer) > 256:
            raise Broken("a record over its bound")
        return [heard for record in records for heard in self._heard(record.decode("utf-8", "replace").split())]

    def _heard(self, words: list[str]) -> list[Heard]:
        if words[:1] == ["done"] and len(words) == 2 and words[1].isdecimal():
            status = int(words[1]) & 0xFF
            done = Heard("done", words={"count": self._count, "exit_code": status})
            if status == 0:
                return [done]
            failure = {"name": "ExitStatus", "value": str(status), "traceback": f"exit status {status}"}
            return [Heard("error", words=failure), done]
        if words in (["ready"], ["reseeded"]):
            return [Heard(words[0])]
        raise Broken("a record of no known kind")


def _is_settable(name: str) -> bool:
    """A prompt would be written between the commands, as if they had said it."""
    return name.isidentifier() and name not in ("PS1", "PS2", "PROMPT_COMMAND")


def _here(text: str) -> str:
    return shlex.quote(text.removesuffix("\n").replace("\0", ""))
