"""A guest in memory: files in a dictionary, and processes that understand a few words.

It speaks the words of the real guest's protocol for what the HTTP edge asks of it. `script` replaces the answer to an
operation, for tests of what a hostile guest may say; a number in it is a time in which the guest says nothing.
"""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from atoll.model import limits
from atoll.model.errors import AtollError, from_guest
from atoll.wire import framing, guest
from atoll.wire.node import SandboxOrder

HOME = "/home/user"
_CHUNK_BYTES = 256 * 1024

Script = Callable[[dict[str, Any]], Iterable[guest.Message | float]]


class FakeProcess:
    """One command line on its way."""

    def __init__(self, ident: str, pid: int, argv: list[str], params: dict[str, Any]) -> None:
        self.id = ident
        self.pid = pid
        self.argv = argv
        self.tag = params.get("tag") or ""
        self.env: dict[str, str] = params.get("env", {})
        self.output = {"stdout": bytearray(), "stderr": bytearray()}
        self.stdin = bytearray()
        self.stdin_open = bool(params.get("stdin"))
        self.exit: dict[str, Any] | None = None
        self.scope = anyio.CancelScope()
        self._changed = anyio.Event()

    def changed(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def wait_changed(self) -> None:
        await self._changed.wait()

    def finish(self, code: int, signal: int | None = None) -> None:
        if self.exit is None:
            self.exit = {"code": code, "signal": signal, "timed_out": False, "oom": False, "duration_s": 0.001}
            self.changed()

    def describe(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "pid": self.pid,
            "tag": self.tag,
            "argv": self.argv,
            "cwd": HOME,
            "user": "user",
            "started_at": 1.0,
            "exit": self.exit,
        }

    async def run(self) -> None:
        with self.scope:
            code = 0
            line = self.argv[2] if self.argv[:2] == ["sh", "-c"] else shlex.join(self.argv)
            for part in line.split(";"):
                code = await self._word(shlex.split(part))
                if self.exit is not None:
                    return
            self.finish(code)

    async def _word(self, words: list[str]) -> int:
        match words:
            case ["echo", *texts]:
                name = "stderr" if texts[-1:] == [">&2"] else "stdout"
                texts = [self.env.get(text[1:], "") if text.startswith("$") else text for text in texts]
                self._write(name, " ".join(text for text in texts if text != ">&2").encode() + b"\n")
            case ["exit", code]:
                self.finish(int(code))
            case ["sleep", seconds]:
                await anyio.sleep(float(seconds))
            case ["yes", count]:
                self._write("stdout", b"y" * int(count))
            case ["cat"]:
                await self._cat()
            case ["true"] | []:
                return 0
            case ["false"]:
                return 1
            case _:
                self._write("stderr", f"{words[0]}: not found\n".encode())
                return 127
        return 0

    async def _cat(self) -> None:
        while self.stdin or self.stdin_open:
            if self.stdin:
                data = bytes(self.stdin)
                self.stdin.clear()
                self._write("stdout", data)
            else:
                await self.wait_changed()

    def _write(self, name: str, data: bytes) -> None:
        self.output[name] += data
        self.changed()


class FakeGuest:
    """The inside of one sandbox."""

    def __init__(self, order: SandboxOrder, tasks: Callable[[], TaskGroup]) -> None:
        self.order = order
        self.files: dict[str, bytes] = {}
        self.directories = {"/", "/home", HOME, "/tmp"}  # noqa: S108 - names in a dictionary
        self.processes: dict[str, FakeProcess] = {}
        self.scripts: dict[str, Script] = {}
        self.streams = 0
        """Streams that are open now."""
        self._tasks = tasks

    def end(self) -> None:
        for process in self.processes.values():
            process.scope.cancel()
            process.finish(137, 9)

    def start(self, params: dict[str, Any]) -> FakeProcess:
        argv = params.get("argv") or ["sh", "-c", params.get("cmd", "")]
        if argv[0] == "nonesuch":
            raise from_guest("no_such_program", "nonesuch: there is no such program")
        number = len(self.processes) + 100
        params["env"] = {**self.order.env, **params.get("env", {})}
        process = self.processes[f"p{number}"] = FakeProcess(f"p{number}", number, argv, params)
        self._tasks().start_soon(process.run)
        return process

    def find(self, params: dict[str, Any]) -> FakeProcess:
        for process in self.processes.values():
            if params.get("id") == process.id or params.get("pid") == process.pid:
                return process
        raise from_guest("no_such_process", "there is no such process")

    def call(self, op: str, params: dict[str, Any]) -> dict[str, Any]:
        if op in self.scripts:
            return _ok_of(self.scripts[op](params))
        match op:
            case "process.start":
                return self.start(params).describe()
            case "process.show":
                return self.find(params).describe()
            case "process.signal":
                process = self.find(params)
                process.scope.cancel()
                process.finish(137, 9)
                return {"pid": process.pid}
            case "file.stat":
                return self.describe(self.path(params))
            case "file.mkdir":
                self.make_directories(self.path(params))
                return self.describe(self.path(params))
            case "file.move":
                source, target = self.path(params), self.path(params, "target")
                self.describe(source)
                self.files[target] = self.files.pop(source)
                return {}
            case "file.remove":
                return self._remove(params)
            case "ping":
                return {}
        raise from_guest("unknown_op", f"{op} is not known")

    def _remove(self, params: dict[str, Any]) -> dict[str, Any]:
        path = self.path(params)
        self.describe(path)
        below = [name for name in (*self.files, *self.directories) if name.startswith(path + "/")]
        if below and not params.get("recursive"):
            raise from_guest("not_empty", f"{path}: not empty")
        for name in (path, *below):
            self.files.pop(name, None)
            self.directories.discard(name)
        return {"removed": True}

    def path(self, params: dict[str, Any], name: str = "path") -> str:
        return posixpath.normpath(posixpath.join(HOME, params[name]))

    def make_directories(self, path: str) -> None:
        while path not in self.directories:
            self.directories.add(path)
            path = posixpath.dirname(path)

    def describe(self, path: str) -> dict[str, Any]:
        if path not in self.files and path not in self.directories:
            raise from_guest("not_found", f"{path}: no such file or directory")
        is_file = path in self.files
        return {
            "path": path,
            "name": posixpath.basename(path) or "/",
            "type": "file" if is_file else "directory",
            "size": len(self.files[path]) if is_file else 0,
            "mode": 0o644 if is_file else 0o755,
            "uid": 1000,
            "gid": 1000,
            "mtime_ns": 1_700_000_000_000_000_000,
            "user": "user",
            "group": "user",
        }

    def children(self, path: str, depth: int) -> list[dict[str, Any]]:
        self.describe(path)
        prefix = path.rstrip("/") + "/"
        names = sorted(name for name in (*self.files, *self.directories) if name.startswith(prefix) and name != prefix)
        return [self.describe(name) for name in names if name[len(prefix) :].count("/") < depth]


class FakeStream:
    """One streamed operation."""

    def __init__(self, inside: FakeGuest, op: str, params: dict[str, Any]) -> None:
        self._guest = inside
        self._op = op
        self._params = params
        self._upload = bytearray()
        self._committed = False
        self._process: FakeProcess | None = None
        inside.streams += 1

    def close(self) -> None:
        self._guest.streams -= 1
        process = self._process
        if process is not None and self._params.get("kill_on_disconnect") and process.exit is None:
            process.scope.cancel()
            process.finish(137, 9)

    async def send(self, payload: bytes | memoryview) -> None:
        self._upload += payload

    async def send_control(self, value: dict[str, Any]) -> None:
        raise AssertionError(f"nobody here sends {value}")

    async def commit(self) -> None:
        self._committed = True

    def __aiter__(self) -> AsyncIterator[guest.Message]:
        return self._messages()

    async def _messages(self) -> AsyncIterator[guest.Message]:
        if self._op in self._guest.scripts:
            for message in self._guest.scripts[self._op](self._params):
                if isinstance(message, float):
                    await anyio.sleep(message)
                    continue
                await anyio.lowlevel.checkpoint()  # a real one is waited for, and meanwhile its caller may leave
                yield _checked(message)
            return
        match self._op:
            case "process.start":
                self._process = self._guest.start(self._params)
                async for message in self._follow(self._process, "started"):
                    yield message
            case "process.attach":
                async for message in self._follow(self._guest.find(self._params), "attached"):
                    yield message
            case "process.list":
                found = [process.describe() for process in self._guest.processes.values()]
                yield guest.Event({"type": "entries", "entries": found})
                yield guest.End({"count": len(found)})
            case "process.stdin":
                yield self._stdin()
            case "file.read":
                for message in self._read():
                    yield message
            case "file.write":
                yield guest.Ok(self._write())
            case "file.list":
                found = self._guest.children(self._guest.path(self._params), self._params.get("depth", 1))
                yield guest.Event({"type": "entries", "entries": found})
                yield guest.End({"count": len(found), "truncated": False})
            case _:
                yield guest.Ok(self._guest.call(self._op, self._params))

    async def _follow(self, process: FakeProcess, kind: str) -> AsyncIterator[guest.Message]:
        yield guest.Event({"type": kind, **process.describe(), "exit": None})
        sent = {name: self._params.get(f"{name}_offset", 0) for name in process.output}
        while True:
            ended = process.exit
            for name, frame_kind in (("stdout", framing.STDOUT), ("stderr", framing.STDERR)):
                while data := bytes(process.output[name][sent[name] : sent[name] + _CHUNK_BYTES]):
                    sent[name] += len(data)
                    yield guest.Data(frame_kind, data)
            if ended is not None:
                yield guest.End(ended)
                return
            if process.exit is None and all(sent[name] == len(process.output[name]) for name in sent):
                await process.wait_changed()

    def _stdin(self) -> guest.Message:
        assert self._committed
        process = self._guest.find(self._params)
        if not process.stdin_open:
            raise from_guest("wrong_state", "standard input of this process is not open")
        process.stdin += self._upload
        process.stdin_open = not self._params.get("close")
        process.changed()
        return guest.Ok({"written": len(self._upload), "offset": len(self._upload)})

    def _read(self) -> Iterable[guest.Message]:
        path = self._guest.path(self._params)
        offset = self._params.get("offset", 0)
        if path in self._guest.directories:
            raise from_guest("is_directory", f"{path}: is a directory")
        yield guest.Event({"type": "opened", "offset": offset, **self._guest.describe(path)})
        view = memoryview(self._guest.files[path])[offset:][: self._params.get("length")]
        for begin in range(0, len(view), limits.FRAME_BYTES_MAX):
            yield guest.Data(framing.OUTPUT, bytes(view[begin : begin + limits.FRAME_BYTES_MAX]))
        yield guest.End({"bytes": len(view)})

    def _write(self) -> dict[str, Any]:
        assert self._committed
        path = self._guest.path(self._params)
        if path in self._guest.directories:
            raise from_guest("is_directory", f"{path}: is a directory")
        self._guest.make_directories(posixpath.dirname(path))
        before = self._guest.files.get(path, b"") if self._params.get("append") else b""
        self._guest.files[path] = before + bytes(self._upload)
        return self._guest.describe(path)


def _ok_of(messages: Iterable[guest.Message | float]) -> dict[str, Any]:
    for message in messages:
        assert not isinstance(message, float), "a call has no time to say nothing"
        checked = _checked(message)
        if isinstance(checked, guest.Ok):
            return checked.value
    raise AssertionError("the script of a call must have an Ok")


def _checked(message: guest.Message) -> guest.Message:
    if isinstance(message, guest.Failure):
        error: AtollError = from_guest(message.code, message.message)
        raise error
    if isinstance(message, guest.Event):
        return guest.Event(message.value, len(guest.control({"event": message.value})))
    return message
