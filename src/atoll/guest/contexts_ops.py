"""Operations on contexts: create, list, run code, follow it, interrupt, restart, remove, start in advance."""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from typing import TYPE_CHECKING, Any

from atoll.guest import contexts_languages
from atoll.guest.channel import Channel
from atoll.guest.contexts import Context
from atoll.guest.contexts_execution import Entry, Execution, Request
from atoll.guest.failure import Disconnected, Refused
from atoll.guest.params import Params, environment, flag, integer, resolve, seconds, text, texts
from atoll.guest.users import base_environment
from atoll.model import limits
from atoll.wire import framing

if TYPE_CHECKING:
    from atoll.guest.agent import Agent


_WARM = ("python", "javascript")


def create(agent: Agent, params: Params, channel: Channel) -> None:
    user = agent.user_of(params)
    asked = text(params, "cwd", "")
    cwd = resolve(asked, user.home, "cwd") if asked else ""
    if cwd and not os.path.isdir(cwd):
        raise Refused("not_found", f"no such working directory: {cwd}")
    context = agent.contexts.create(text(params, "language", "python", chars_max=64), user, cwd)
    channel.send_ok(context.describe())


def list_all(agent: Agent, _params: Params, channel: Channel) -> None:
    user = agent.user_of({})
    path = {**base_environment(user, terminal=False), **agent.env}["PATH"]
    entries = [context.describe() for context in agent.contexts.all()]
    channel.send_ok({"entries": entries, "languages": contexts_languages.known(user, path)})


def restart(agent: Agent, params: Params, channel: Channel) -> None:
    context = _context(agent, params)
    context.restart()
    channel.send_ok(context.describe())


def interrupt(agent: Agent, params: Params, channel: Channel) -> None:
    context = _context(agent, params)
    execution = params.get("execution")
    wanted = context.find(text(params, "execution", chars_max=64)) if execution is not None else None
    channel.send_ok({"interrupted": context.interrupt(wanted)})


def remove(agent: Agent, params: Params, channel: Channel) -> None:
    agent.contexts.remove(text(params, "context", chars_max=64))
    channel.send_ok({})


def warm(agent: Agent, params: Params, channel: Channel) -> None:
    """Start default contexts in advance, side by side; the answer says which are there.

    Without `languages`: Python and JavaScript, in a template that is made for code, which IPython is the sign of. For
    an image that is `for_copies`, what each copy would have to end at once is left to them.
    """
    names = texts(params, "languages") or list(_WARM)
    only_if_first = "languages" not in params
    timeout_s = seconds(params, "timeout_s") or limits.CONTEXT_START_S_MAX
    for_copies = flag(params, "for_copies")
    outcome: dict[str, str] = {}

    def start(name: str) -> None:
        try:
            context = agent.contexts.get(name)
            if for_copies and context.language.reseed != "message":
                context.leave_cold()
                outcome[name] = "later"
                return
            context.warm(timeout_s)
            outcome[name] = "ready"
        except (Refused, OSError) as error:
            outcome[name] = str(error)[:512]
            with contextlib.suppress(Refused):
                agent.contexts.remove(contexts_languages.canonical(name))

    if only_if_first:
        start(names[0])
        names = names[1:] if outcome[names[0]] in ("ready", "later") else []
    threads = [threading.Thread(target=start, args=(name,), daemon=True) for name in names[: limits.CONTEXTS_MAX]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    channel.send_ok({"contexts": outcome})


def warm_again(agent: Agent, _params: Params, channel: Channel) -> None:
    """Warm again what was before this copy began to live, one after the other; the answer comes when it is ready."""
    for context in agent.contexts.cold():
        context.warm_again()
    channel.send_ok({})


def cool(agent: Agent, _params: Params, channel: Channel) -> None:
    """Before copies are made: end what each of them would have to end. The answer says whether there was any."""
    ending = [runner for context in agent.contexts.all() if (runner := context.cool()) is not None]
    deadline_s = time.monotonic() + limits.CONTEXT_COOL_S_MAX
    while any(runner.process.exit is None for runner in ending) and time.monotonic() < deadline_s:
        time.sleep(0.001)
    channel.send_ok({"cold": bool(ending)})


def run(agent: Agent, params: Params, channel: Channel) -> None:
    context = _context(agent, params)
    request = Request(
        code=_code(params, channel),
        env=environment(params),
        timeout_s=seconds(params, "timeout_s"),
        stdin=_stdin(params),
    )
    execution = context.submit(request)
    if flag(params, "detach"):
        channel.send_ok({"id": execution.id, "context": context.id})
        return
    _follow(context, execution, channel, 0, interrupts=flag(params, "interrupt_on_disconnect", default=True))


def attach(agent: Agent, params: Params, channel: Channel) -> None:
    context = _context(agent, params)
    execution = context.find(text(params, "execution", chars_max=64))
    interrupts = flag(params, "interrupt_on_disconnect")
    _follow(context, execution, channel, integer(params, "skip", 0), interrupts=interrupts)


def _context(agent: Agent, params: Params) -> Context:
    return agent.contexts.get(text(params, "context", "python", chars_max=64))


def _code(params: Params, channel: Channel) -> str:
    """Code may hold anything, NUL bytes too; long code comes after the request."""
    if not flag(params, "upload"):
        code = params.get("code")
        if not isinstance(code, str):
            raise Refused("invalid_argument", "code must be text")
        return code
    data = bytearray()
    for part in channel.read_upload():
        data += part
        if len(data) > limits.CODE_BYTES_MAX:
            raise Refused("too_large", f"code is longer than {limits.CODE_BYTES_MAX} bytes")
    return data.decode("utf-8", "surrogateescape")


def _stdin(params: Params) -> str | None:
    value = params.get("stdin")
    if value is not None and not isinstance(value, str):
        raise Refused("invalid_argument", "stdin must be text")
    return value


def _follow(context: Context, execution: Execution, channel: Channel, skip: int, *, interrupts: bool) -> None:
    wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def wake() -> None:
        with contextlib.suppress(OSError):
            os.eventfd_write(wake_fd, 1)

    execution.watch(wake)
    try:
        _send_all(execution, channel, skip, wake_fd)
        execution.unwatch(wake)
    except Disconnected:
        if execution.unwatch(wake) == 0 and interrupts:
            context.interrupt(execution)
        raise
    finally:
        os.close(wake_fd)


def _send_all(execution: Execution, channel: Channel, index: int, wake_fd: int) -> None:
    channel.send_event("started", {"id": execution.id, "context": execution.context_id})
    poll = select.poll()
    poll.register(wake_fd, select.POLLIN)
    poll.register(channel.socket, select.POLLIN)
    while True:
        for entry in execution.read(index):
            index += 1
            if entry.event is not None and entry.event["type"] == "ended":
                channel.send_end(entry.event)
                return
            _send(entry, channel)
        ready = {fd for fd, _ in poll.poll(int(limits.EXECUTION_KEEPALIVE_S * 1000))}
        if wake_fd in ready:
            os.eventfd_read(wake_fd)
        if channel.socket.fileno() in ready:
            raise Disconnected("the client left, or speaks when it should listen")
        if not ready:
            channel.send_event("keepalive", {})


def _send(entry: Entry, channel: Channel) -> None:
    if entry.event is not None:
        channel.send_event(entry.event["type"], {key: value for key, value in entry.event.items() if key != "type"})
        return
    if entry.kind != framing.OUTPUT:
        for part in _parts(entry.payload):
            channel.send_data(entry.kind, part)
        return
    channel.send_event("result", {"bytes": len(entry.payload)})
    for part in _parts(entry.payload):
        channel.send_data(framing.OUTPUT, part)


def _parts(payload: bytes) -> list[memoryview]:
    view = memoryview(payload)
    return [view[start : start + limits.FRAME_BYTES_MAX] for start in range(0, len(view), limits.FRAME_BYTES_MAX)]


OPS: dict[str, Any] = {
    "contexts.create": create,
    "contexts.list": list_all,
    "contexts.restart": restart,
    "contexts.interrupt": interrupt,
    "contexts.remove": remove,
    "contexts.warm": warm,
    "contexts.warm_again": warm_again,
    "contexts.cool": cool,
    "contexts.run": run,
    "contexts.attach": attach,
}
