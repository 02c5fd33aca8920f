"""A stand-in for a server, as a program of its own: `/v1` with processes and files of a temporary folder.

It prints its address and serves until it is killed. A command that contains CUT has its stream broken off after the
first output, once, as a server does that is restarted; and input that contains CUT in the middle, once for a process.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import stat
import tempfile
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from atoll.model import ids
from atoll.model.errors import AtollError, Conflict, InvalidArgument, NotFound, Unauthenticated
from atoll.wire import framing
from atoll.wire.public import ProcessSignal, ProcessStart, SandboxCreate, SandboxDeadline

KEY = "atoll_test"
LISTED_MAX = 50  # things in one list of a folder; a real server has more room


class Process:
    """A real process of this machine, its whole output in memory."""

    def __init__(self, start: ProcessStart, child: asyncio.subprocess.Process, began: float) -> None:
        self.id = f"p{child.pid}"
        self.start = start
        self.child = child
        self.output: list[tuple[int, bytes]] = []
        self.changed = asyncio.Condition()
        self.exit: dict[str, Any] | None = None
        self.cuts = 1 if "CUT" in (start.cmd or "") else 0
        self.stdin_bytes = 0
        self.stdin_cuts = 1
        self.began = began

    async def pump(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._pump(1, self.child.stdout))
            tasks.create_task(self._pump(2, self.child.stderr))
        code = await self.child.wait()
        timed_out = self.start.timeout_s is not None and time.monotonic() - self.began >= self.start.timeout_s
        self.exit = {
            "type": "exited",
            "exit_code": code if code >= 0 else 128 - code,
            "signal": -code if code < 0 else None,
            "timed_out": timed_out and code in (137, -9),  # of timeout(1)
            "oom": False,
            "duration_s": time.monotonic() - self.began,
        }
        async with self.changed:
            self.changed.notify_all()

    async def _pump(self, kind: int, reader: asyncio.StreamReader | None) -> None:
        assert reader is not None
        while data := await reader.read(65536):
            self.output.append((kind, data))
            async with self.changed:
                self.changed.notify_all()

    async def frames(self, offsets: dict[int, int]) -> AsyncIterator[bytes]:
        yield control({"type": "started", "id": self.id, "pid": self.child.pid})
        position = 0
        while True:
            while position < len(self.output):
                kind, data = self.output[position]
                position += 1
                skipped = min(offsets[kind], len(data))
                offsets[kind] -= skipped
                if data[skipped:]:
                    yield framing.encode(kind, data[skipped:])
                    if self.cuts:
                        self.cuts -= 1
                        if self.start.kill_on_disconnect:
                            os.killpg(self.child.pid, signal.SIGKILL)
                        raise ConnectionAbortedError
            if self.exit is not None:
                yield control(self.exit)
                return
            async with self.changed:
                if position == len(self.output) and self.exit is None:
                    await self.changed.wait()


class Box:
    def __init__(self, body: SandboxCreate) -> None:
        self.body = body
        self.id = ids.mint(ids.SANDBOX, time.time_ns() // 1_000_000, os.urandom(16))
        self.root = Path(tempfile.mkdtemp(prefix="atoll-fake-"))
        self.processes: dict[str, Process] = {}
        self.created_at = datetime.now(UTC)
        self.deadline_at = self.created_at + timedelta(seconds=body.timeout_s)
        self.state = "running"

    def view(self) -> dict[str, Any]:
        ended = self.state != "running"
        return {
            "id": self.id,
            "template": self.body.template,
            "name": self.body.name,
            "metadata": self.body.metadata,
            "resources": msgspec.to_builtins(self.body.resources.resources()),
            "state": self.state,
            "created_at": self.created_at.isoformat(),
            "started_at": self.created_at.isoformat(),
            "deadline_at": self.deadline_at.isoformat(),
            "ended_at": self.created_at.isoformat() if ended else None,
            "end_reason": "killed_by_user" if ended else None,
            "end_detail": "",
            "a_field_of_tomorrow": 1,
        }

    def file(self, path: bytes) -> bytes:
        return os.path.join(os.fsencode(self.root), path.lstrip(b"/"))


BOXES: dict[str, Box] = {}
TASKS: set[asyncio.Task[None]] = set()


def control(message: dict[str, Any]) -> bytes:
    return framing.encode(framing.CONTROL, msgspec.json.encode(message))


def box(request: Request, *, live: bool = True) -> Box:
    wanted = request.path_params["id"]
    for found in BOXES.values():
        if found.id == wanted or (found.body.name == wanted and found.state == "running"):
            if live and found.state != "running":
                raise Conflict("the sandbox is killed", code="not_running")
            return found
    raise NotFound(f"no sandbox {wanted}", code="sandbox_not_found", hint="See the list.")


def raw_path(request: Request) -> bytes:
    from urllib.parse import parse_qs

    query: str = request.scope["query_string"].decode("ascii")
    return parse_qs(query, encoding="utf-8", errors="surrogateescape")["path"][0].encode("utf-8", "surrogateescape")


async def create(request: Request) -> Response:
    body = msgspec.json.decode(await request.body(), type=SandboxCreate)
    body.spec().checked()
    if body.template not in ("base", "code"):
        raise InvalidArgument(f"no template {body.template}", code="template_not_found", hint="Try code.")
    if body.name and any(b.body.name == body.name and b.state == "running" for b in BOXES.values()):
        raise Conflict(f"the name {body.name} is taken", code="name_taken")
    made = Box(body)
    BOXES[made.id] = made
    return JSONResponse({"sandbox": made.view(), "steps_ms": {"fake": 1.0}}, 201)


async def page(request: Request) -> Response:
    query = request.query_params
    labels = dict(item.split("=", 1) for item in query.getlist("metadata"))
    found = [
        b
        for b in reversed(BOXES.values())
        if labels.items() <= b.body.metadata.items()
        and b.state in (query.getlist("state") or [b.state])
        and query.get("template", b.body.template) == b.body.template
    ]
    start, count = int(query.get("cursor", 0)), min(int(query["limit"]), 3)
    following = str(start + count) if start + count < len(found) else None
    return JSONResponse({"items": [b.view() for b in found[start : start + count]], "next": following})


async def get(request: Request) -> Response:
    return JSONResponse(box(request, live=False).view())


async def kill(request: Request) -> Response:
    found = box(request, live=False)
    found.state = "killed"
    for process in found.processes.values():
        if process.exit is None:
            process.child.kill()
    shutil.rmtree(found.root, ignore_errors=True)
    return JSONResponse(found.view())


async def deadline(request: Request) -> Response:
    body = msgspec.json.decode(await request.body(), type=SandboxDeadline)
    found = box(request)
    found.deadline_at = datetime.now(UTC) + timedelta(seconds=body.timeout_s)
    return JSONResponse(found.view())


async def start(request: Request) -> Response:
    found = box(request)
    body = msgspec.json.decode(await request.body(), type=ProcessStart)
    argv = body.argv or ["/bin/sh", "-c", body.cmd or ""]
    if body.timeout_s is not None:
        argv = ["timeout", "-s", "KILL", "--foreground", str(body.timeout_s), *argv]
    began = time.monotonic()  # before timeout(1) begins to count
    child = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.PIPE if body.stdin else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=body.cwd or found.root,
        env={**os.environ, **found.body.env, **body.env},
        start_new_session=True,
    )
    process = Process(body, child, began)
    found.processes[process.id] = process
    task = asyncio.get_running_loop().create_task(process.pump())
    TASKS.add(task)
    task.add_done_callback(TASKS.discard)
    if request.query_params.get("follow") == "false":
        return JSONResponse({"type": "started", "id": process.id, "pid": child.pid}, 201)
    return StreamingResponse(process.frames({1: 0, 2: 0}), media_type="application/vnd.atoll.frames")


async def processes(request: Request) -> Response:
    items = [
        {
            "id": p.id,
            "pid": p.child.pid,
            "argv": p.start.argv or ["sh", "-c", p.start.cmd],
            "tag": p.start.tag,
            "user": "user",
            "cwd": "/",
            "running": p.exit is None,
            "exit_code": p.exit["exit_code"] if p.exit else None,
            "started_at": datetime.now(UTC).isoformat(),
            "stdin_offset": p.stdin_bytes,
        }
        for p in box(request).processes.values()
    ]
    return JSONResponse({"items": items})


def process_of(request: Request) -> Process:
    try:
        return box(request).processes[request.path_params["process"]]
    except KeyError:
        raise NotFound("no such process", code="no_such_process") from None


async def output(request: Request) -> Response:
    process = process_of(request)
    offsets = {1: int(request.query_params["stdout_offset"]), 2: int(request.query_params["stderr_offset"])}
    return StreamingResponse(process.frames(offsets), media_type="application/vnd.atoll.frames")


async def send_signal(request: Request) -> Response:
    body = msgspec.json.decode(await request.body(), type=ProcessSignal)
    number = getattr(signal, f"SIG{body.signal}") if isinstance(body.signal, str) else body.signal
    os.killpg(process_of(request).child.pid, number)
    return Response(status_code=204)


async def stdin(request: Request) -> Response:
    process = process_of(request)
    pipe = process.child.stdin
    if pipe is None or pipe.is_closing() or process.exit is not None:
        raise Conflict("its standard input is closed", code="wrong_state")
    content = await request.body()
    rest = content[process.stdin_bytes - int(request.query_params.get("offset", process.stdin_bytes)) :]
    cut = b"CUT" in rest and process.stdin_cuts > 0
    if cut:
        process.stdin_cuts -= 1
        rest = rest[: len(rest) // 2]
    try:
        pipe.write(rest)
        await pipe.drain()
    except OSError:
        raise Conflict("its standard input is closed", code="wrong_state") from None
    process.stdin_bytes += len(rest)
    if cut:
        return StreamingResponse(broken())
    if request.query_params.get("close") == "true":
        pipe.close()
    return JSONResponse({"written": len(content), "offset": process.stdin_bytes})


async def broken() -> AsyncIterator[bytes]:
    """An answer that begins, and whose connection breaks."""
    yield b"{"
    raise ConnectionAbortedError


def os_error(error: OSError) -> AtollError:
    if isinstance(error, FileNotFoundError):
        return NotFound("there is no such file", code="not_found")
    return InvalidArgument(str(error.strerror), code="invalid_argument")


async def read(request: Request) -> Response:
    query = request.query_params
    try:
        file = open(box(request).file(raw_path(request)), "rb")  # noqa: SIM115 - closed by the stream
    except OSError as error:
        raise os_error(error) from None
    file.seek(int(query.get("offset", 0)))

    async def pieces() -> AsyncIterator[bytes]:
        left = int(query.get("length", 1 << 62))
        with file:
            while data := file.read(min(left, 262144)):
                left -= len(data)
                yield data

    return StreamingResponse(pieces(), media_type="application/octet-stream")


async def write(request: Request) -> Response:
    path = box(request).file(raw_path(request))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    size = 0
    with open(path, "ab" if request.query_params.get("append") == "true" else "wb") as file:
        async for data in request.stream():
            size += file.write(data)
    if "mode" in request.query_params:
        os.chmod(path, int(request.query_params["mode"], 8))
    return JSONResponse({"path": raw_path(request).decode("utf-8", "replace"), "size": size})


def file_view(path: bytes) -> dict[str, Any]:
    try:
        found = os.lstat(path)
    except OSError as error:
        raise os_error(error) from None
    return {
        "path": os.fsdecode(path),
        "name": os.fsdecode(os.path.basename(path)),
        "type": "directory" if stat.S_ISDIR(found.st_mode) else "file",
        "size": found.st_size,
        "mode": stat.S_IMODE(found.st_mode),
        "owner": "user",
        "group": "user",
        "modified_at": datetime.fromtimestamp(found.st_mtime, UTC).isoformat(),
    }


async def listing(request: Request) -> Response:
    folder = box(request).file(raw_path(request))
    return file_list([os.path.join(folder, name) for name in sorted(os.listdir(folder))], LISTED_MAX)


async def find(request: Request) -> Response:
    pattern = request.query_params["pattern"].encode()
    found = Path(os.fsdecode(box(request).file(raw_path(request)))).rglob(os.fsdecode(pattern))
    return file_list([os.fsencode(path) for path in sorted(found)], int(request.query_params.get("limit", 10_000)))


def file_list(paths: list[bytes], most: int) -> Response:
    import json

    answer = {"items": [file_view(path) for path in paths[:most]], "truncated": len(paths) > most}
    return Response(json.dumps(answer), media_type="application/json")


async def stat_one(request: Request) -> Response:
    return JSONResponse(file_view(box(request).file(raw_path(request))))


async def remove(request: Request) -> Response:
    path = box(request).file(raw_path(request))
    try:
        if request.query_params.get("recursive") == "true":
            shutil.rmtree(path)
        else:
            os.unlink(path)
    except OSError as error:
        raise os_error(error) from None
    return Response(status_code=204)


async def mkdir(request: Request) -> Response:
    body = await request.json()
    os.makedirs(box(request).file(os.fsencode(body["path"])), exist_ok=True)
    return Response(status_code=201)


async def move(request: Request) -> Response:
    body = await request.json()
    found = box(request)
    os.rename(found.file(os.fsencode(body["source"])), found.file(os.fsencode(body["target"])))
    return Response(status_code=204)


async def templates(request: Request) -> Response:
    items = [{"name": n, "key": n * 8, "user": "user", "workdir": "/home/user"} for n in ("base", "code")]
    return JSONResponse({"items": items})


async def problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, AtollError)
    body = {
        "type": "about:blank",
        "title": type(error).__name__,
        "status": error.http_status,
        "code": error.code,
        "detail": error.message,
        "hint": error.hint,
        "retryable": error.retryable,
        "request_id": "r1",
    }
    return JSONResponse(body, error.http_status, media_type="application/problem+json")


class RequireKey:
    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = dict(scope.get("headers", []))
        if scope["type"] == "http" and headers.get(b"authorization") != b"Bearer " + KEY.encode():
            answer = await problem(Request(scope), Unauthenticated("that key is not known", hint="Use another."))
            await answer(scope, receive, send)
            return
        await self.app(scope, receive, send)


def application() -> Any:
    one = "/v1/sandboxes/{id}"
    routes = [
        Route("/v1/sandboxes", create, methods=["POST"]),
        Route("/v1/sandboxes", page, methods=["GET"]),
        Route(one, get, methods=["GET"]),
        Route(one, kill, methods=["DELETE"]),
        Route(f"{one}/deadline", deadline, methods=["PUT"]),
        Route(f"{one}/processes", start, methods=["POST"]),
        Route(f"{one}/processes", processes, methods=["GET"]),
        Route(f"{one}/processes/{{process}}/output", output, methods=["GET"]),
        Route(f"{one}/processes/{{process}}/signal", send_signal, methods=["POST"]),
        Route(f"{one}/processes/{{process}}/stdin", stdin, methods=["POST"]),
        Route(f"{one}/files/content", read, methods=["GET"]),
        Route(f"{one}/files/content", write, methods=["PUT"]),
        Route(f"{one}/files", listing, methods=["GET"]),
        Route(f"{one}/files/find", find, methods=["GET"]),
        Route(f"{one}/files", remove, methods=["DELETE"]),
        Route(f"{one}/files/stat", stat_one, methods=["GET"]),
        Route(f"{one}/files/move", move, methods=["POST"]),
        Route(f"{one}/directories", mkdir, methods=["POST"]),
        Route("/v1/templates", templates, methods=["GET"]),
    ]
    return RequireKey(Starlette(routes=routes, exception_handlers={AtollError: problem}))


def serve() -> None:
    # With its protocol named: asyncio turns Nagle's delay (40 ms) off only for sockets that say they are TCP.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    config = uvicorn.Config(application(), log_level="critical", http="httptools")
    try:
        asyncio.run(uvicorn.Server(config).serve([listener]))
    finally:
        for found in BOXES.values():
            shutil.rmtree(found.root, ignore_errors=True)


if __name__ == "__main__":
    serve()
