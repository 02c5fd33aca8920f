"""Processes of a real guest: what they print, how they end, who may follow them."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from atoll.guest.failure import Refused
from atoll.guest.processes import Process, Spec, Table
from atoll.guest.processops import list_all
from atoll.guest.pump import Pump
from atoll.guest.ring import Budget
from atoll.guest.users import User
from atoll.model import errors, limits
from atoll.node.guestlink import GuestLink, GuestStream
from atoll.wire import framing
from atoll.wire import guest as wire
from tests.listed import listed
from tests.waiting import wait_until

pytestmark = pytest.mark.anyio


async def drain(stream: GuestStream) -> tuple[bytes, bytes, dict[str, Any], list[dict[str, Any]]]:
    out = {framing.STDOUT: b"", framing.STDERR: b""}
    events: list[dict[str, Any]] = []
    async for message in stream:
        if isinstance(message, wire.Data):
            out[message.kind] += message.payload
        elif isinstance(message, wire.Event):
            events.append(message.value)
        elif isinstance(message, wire.End):
            return out[framing.STDOUT], out[framing.STDERR], message.value, events
    raise AssertionError("no end")


async def run(link: GuestLink, **params: Any) -> tuple[bytes, bytes, dict[str, Any], list[dict[str, Any]]]:
    async with link.stream("process.start", params) as stream:
        return await drain(stream)


async def test_output_apart_and_exit_code(link: GuestLink) -> None:
    out, err, end, events = await run(link, cmd="echo $A; echo b >&2; exit 3", env={"A": "x y"})
    assert (out, err, end["code"], end["signal"]) == (b"x y\n", b"b\n", 3, None)
    assert events[0]["type"] == "started"
    assert (end["stdout_bytes"], end["stderr_bytes"]) == (4, 2)


async def test_argv_is_taken_as_it_is(link: GuestLink) -> None:
    out, _, _, _ = await run(link, argv=["printf", "%s|", "a b", "$A", "'", b"\xff".decode("utf-8", "surrogateescape")])
    assert out == b"a b|$A|'|\xff|"


async def test_another_user_has_its_own_rights(link: GuestLink) -> None:
    out, _, _, _ = await run(link, cmd="id -un; id -G; cat /etc/shadow >/dev/null 2>&1 || echo no", user="nobody")
    assert out.split() == [b"nobody", b"65534", b"no"]


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({"argv": ["/no/such/program"]}, "no_such_program"),
        ({"argv": ["no-such-program"]}, "no_such_program"),
        ({"argv": ["/etc/passwd"]}, "permission_denied"),
        ({"cmd": "true", "cwd": "/no/such"}, "not_found"),
        ({"cmd": "true", "cwd": "/etc/passwd"}, "not_directory"),
        ({"cmd": "true", "user": "no-such-user"}, "unknown_user"),
        ({"cmd": "true", "argv": ["true"]}, "invalid_argument"),
        ({}, "invalid_argument"),
        ({"argv": [""]}, "invalid_argument"),
        ({"argv": ["a\0b"]}, "invalid_argument"),
        ({"argv": "ls"}, "invalid_argument"),
        ({"cmd": "true", "env": {"A=B": "x"}}, "invalid_argument"),
        ({"cmd": "true", "timeout_s": -1}, "invalid_argument"),
        ({"cmd": "true", "pty": {"cols": 0}}, "invalid_argument"),
        ({"argv": ["x"] * (limits.ARGV_ENTRIES_MAX + 1)}, "invalid_argument"),
    ],
)
async def test_bad_requests_have_stable_codes(link: GuestLink, params: dict[str, Any], code: str) -> None:
    with pytest.raises(errors.AtollError) as caught:
        await run(link, **params)
    assert caught.value.code == code


async def test_stdin_is_a_stream_with_an_end(link: GuestLink) -> None:
    async with link.stream("process.start", {"argv": ["cat"], "stdin": True}) as stream:
        await stream.send(b"one ")
        await stream.send(b"two")
        await stream.send_control({"do": "close_stdin"})
        out, _, end, _ = await drain(stream)
    assert (out, end["code"]) == (b"one two", 0)


async def test_much_input_and_much_output_do_not_lock_each_other_up(link: GuestLink) -> None:
    import anyio

    size = 8 * limits.MIB
    async with link.stream("process.start", {"argv": ["cat"], "stdin": True}) as stream:

        async def feed() -> None:
            await stream.send(bytes(size))
            await stream.send_control({"do": "close_stdin"})

        async with anyio.create_task_group() as group:
            group.start_soon(feed)
            out, _, _, events = await drain(stream)
    assert len(out) == size
    assert [event["type"] for event in events] == ["started"]


async def test_a_terminal(link: GuestLink) -> None:
    async with link.stream("process.start", {"argv": ["sh"], "pty": {"cols": 91, "rows": 17}}) as stream:
        await stream.send(b"stty size; test -t 0 && echo is-a-tty\n")
        await stream.send_control({"do": "resize", "cols": 50, "rows": 20})
        await stream.send(b"stty size\n")
        await stream.send(b"exit 4\n")
        out, _, end, _ = await drain(stream)
    assert b"is-a-tty\r\n" in out
    assert b"20 50" in out
    assert end["code"] == 4


async def test_control_c_reaches_the_foreground(link: GuestLink) -> None:
    async with link.stream("process.start", {"argv": ["sleep", "30"], "pty": True}) as stream:
        await stream.receive()
        await stream.send(b"\x03")
        _, _, end, _ = await drain(stream)
    assert end["signal"] == 2


async def test_a_timeout_ends_the_whole_tree(link: GuestLink) -> None:
    began = time.monotonic()
    out, _, end, _ = await run(link, cmd="sleep 61 & echo $!; setsid sleep 62 & echo $!; sleep 63", timeout_s=0.3)
    assert end["timed_out"]
    assert time.monotonic() - began < 2
    time.sleep(0.1)
    for pid in out.split():
        assert not os.path.exists(f"/proc/{int(pid)}/exe") or "sleep" not in os.readlink(f"/proc/{int(pid)}/exe")


async def test_a_program_that_ignores_term_is_killed(link: GuestLink) -> None:
    _, _, end, _ = await run(link, cmd="trap '' TERM; while :; do sleep 0.05; done", timeout_s=0.2)
    assert (end["timed_out"], end["signal"]) == (True, 9)


async def test_what_runs_in_the_background_does_not_hold_its_command_up(link: GuestLink) -> None:
    began = time.monotonic()
    out, _, end, events = await run(link, cmd="(sleep 0.5; echo late) & echo now")
    assert (out, end["code"]) == (b"now\n", 0)
    assert time.monotonic() - began < 0.4
    time.sleep(0.7)
    async with link.stream("process.output", {"id": events[0]["id"]}) as stream:
        out, _, _, _ = await drain(stream)
    assert out == b"now\nlate\n"


async def test_processes_go_on_without_their_caller_and_are_found_by_tag(link: GuestLink) -> None:
    async with link.stream("process.start", {"cmd": "echo a; sleep 0.4; echo b", "tag": "mine"}) as stream:
        await stream.receive()
    async with link.stream("process.attach", {"tag": "mine"}) as first:
        async with link.stream("process.attach", {"tag": "mine", "stdout_offset": 1}) as second:
            assert (await drain(first))[0] == b"a\nb\n"
            assert (await drain(second))[0] == b"\nb\n"
    assert (await link.call("process.wait", {"tag": "mine"}))["exit"]["code"] == 0


async def test_kill_on_disconnect(link: GuestLink) -> None:
    async with link.stream("process.start", {"argv": ["sleep", "60"], "kill_on_disconnect": True}) as stream:
        started = await stream.receive()
        assert isinstance(started, wire.Event)
    ended = await link.call("process.wait", {"id": started.value["id"], "timeout_s": 5})
    assert ended["exit"]["signal"] == 15


async def test_lost_output_is_marked(link: GuestLink) -> None:
    total = limits.RING_BYTES_MAX + 100_000
    started = await link.call("process.start", {"cmd": f"head -c {total} /dev/zero", "detach": True})
    await link.call("process.wait", {"id": started["id"]})
    async with link.stream("process.attach", {"id": started["id"]}) as stream:
        out, _, end, events = await drain(stream)
    dropped = [event for event in events if event["type"] == "dropped"]
    assert len(out) + dropped[0]["bytes"] == total == end["stdout_bytes"]


async def test_a_client_that_never_reads_slows_nobody_else(link: GuestLink) -> None:
    async with link.stream("process.start", {"argv": ["yes"], "tag": "flood", "kill_on_disconnect": True}):
        for _ in range(5):
            out, _, _, _ = await run(link, argv=["echo", "x"])
            assert out == b"x\n"


async def test_signals_by_name_number_and_bad_ones(link: GuestLink) -> None:
    started = await link.call("process.start", {"argv": ["sleep", "60"], "detach": True})
    with pytest.raises(errors.InvalidArgument):
        await link.call("process.signal", {"id": started["id"], "signal": "NONSENSE"})
    await link.call("process.signal", {"pid": started["pid"], "signal": "SIGKILL"})
    assert (await link.call("process.wait", {"id": started["id"]}))["exit"]["signal"] == 9
    with pytest.raises(errors.NotFound) as caught:
        await link.call("process.signal", {"id": started["id"], "signal": 15})
    assert caught.value.code == "no_such_process"


async def test_input_from_another_connection(link: GuestLink) -> None:
    started = await link.call("process.start", {"argv": ["cat"], "stdin": True, "detach": True})

    async def chunks() -> Any:
        yield b"hello"

    written = await link.upload("process.stdin", {"id": started["id"], "close": True}, chunks())
    assert written == {"written": 5, "offset": 5}
    await link.call("process.wait", {"id": started["id"]})
    async with link.stream("process.attach", {"id": started["id"]}) as stream:
        assert (await drain(stream))[0] == b"hello"


async def test_a_worker_that_its_user_killed_is_replaced_and_nothing_is_lost(link: GuestLink) -> None:
    out, _, _, _ = await run(link, cmd="echo $PPID")
    started = await link.call("process.start", {"cmd": "sleep 0.5; exit 7", "detach": True})
    os.kill(int(out), 9)
    time.sleep(0.2)
    assert (await run(link, argv=["echo", "x"]))[0] == b"x\n"
    assert (await link.call("process.wait", {"id": started["id"], "timeout_s": 5}))["exit"]["code"] == 7


async def test_limits_of_one_process(link: GuestLink) -> None:
    out, _, _, _ = await run(link, cmd="ulimit -n; ulimit -c", limits={"open_files": 77})
    assert out == b"77\n0\n"


async def test_a_hundred_at_once(link: GuestLink) -> None:
    import anyio

    codes: list[int] = []

    async def one(number: int) -> None:
        codes.append((await run(link, cmd=f"exit {number}"))[2]["code"])

    async with anyio.create_task_group() as group:
        for number in range(100):
            group.start_soon(one, number)
    assert sorted(codes) == list(range(100))


async def test_the_list_holds_what_runs(link: GuestLink) -> None:
    started = await link.call("process.start", {"argv": ["sleep", "60"], "detach": True})
    entries, _ = await listed(link, "process.list", {"running": True})
    assert started["id"] in {entry["id"] for entry in entries}
    await link.call("process.signal", {"id": started["id"], "signal": "KILL", "tree": True})


async def test_a_short_program_with_a_lower_priority_does_no_harm(link: GuestLink) -> None:
    """It has ended, as a rule, when its priority would be set."""
    for _ in range(50):
        _, _, end, _ = await run(link, argv=["true"], nice=5)
        assert end["code"] == 0
    out, _, _, _ = await run(link, cmd="sleep 0.05; nice", nice=5)
    assert out == b"5\n"


async def test_the_list_holds_processes_with_long_and_many_arguments(link: GuestLink) -> None:
    script = "import time; time.sleep(60)"
    many = [{"argv": ["python3", "-c", script, "\u4e2d" * 4000]} for _ in range(3)]
    many += [{"argv": ["python3", "-c", script, *[""] * 4097]}, {"argv": ["python3", "-c", script, *["x"] * 2000]}]
    ids = {(await link.call("process.start", {**params, "detach": True}))["id"] for params in many}
    try:
        entries, end = await listed(link, "process.list", {"running": True})
        found = {entry["id"]: entry["argv"] for entry in entries}
        assert ids <= found.keys()
        assert end["count"] == len(found)
        assert sorted(len(found[ident]) for ident in ids) == [2, 4, 4, 4, 2003]
    finally:
        for ident in ids:
            await link.call("process.signal", {"id": ident, "signal": "KILL"})


def test_a_frame_of_the_list_is_bounded_by_what_is_in_it() -> None:
    class Ear:
        def __init__(self) -> None:
            self.count = 0

        def send_event(self, kind: str, value: dict[str, Any]) -> None:
            assert len(wire.control({"event": {"type": kind, **value}})) < limits.FRAME_BYTES_MAX
            self.count += len(value["entries"])

        def send_end(self, value: dict[str, Any]) -> None:
            assert value == {"count": self.count}

    user = User("root", 0, 0, (0,), "/", "/bin/sh")
    for argv in (
        ["\u4e2d" * 4000],
        ["\U00020000" * 4000],
        [""] * 4096,
        ["x", "\u4e2d" * 200_000],
        ["\u4e2d" * 200_000],
    ):
        made = [Process("x", Spec(argv, {}, "/\u4e2d" * 1000, user, tag="\u4e2d" * 60), Budget()) for _ in range(100)]
        agent = SimpleNamespace(processes=SimpleNamespace(all=lambda made=made: made))
        list_all(agent, {}, Ear())  # type: ignore[arg-type]


async def test_a_reader_that_is_slow_holds_up_none_that_is_quick(link: GuestLink) -> None:
    """The slow one reads nothing at all, and the quick one gets many times what anything in between could hold.

    First in pieces that the ring holds, until what lies between the program and the slow one is full: as long as it is
    not, the slow one may be ahead, and then nobody waits for the quick one.
    """
    size, pieces, piece, count = 64 * limits.MIB, 24, limits.RING_BYTES_MAX // 2, 0
    command = (
        f"for i in $(seq {pieces}); do read go; head -c {piece} /dev/zero; done; read go; head -c {size} /dev/zero"
    )
    started = await link.call("process.start", {"cmd": command, "stdin": True, "detach": True})
    async with (
        link.stream("process.attach", {"id": started["id"]}, idle_s=60) as slow,
        link.stream("process.attach", {"id": started["id"]}) as quick,
    ):
        await slow.receive()
        await quick.receive()
        for number in range(pieces):
            await quick.send(b"\n")
            while count < (number + 1) * piece:
                count += len((await quick.receive()).payload)  # type: ignore[union-attr]
        began = time.monotonic()
        await quick.send(b"\n")
        async for message in quick:
            if isinstance(message, wire.Data):
                count += len(message.payload)
            elif isinstance(message, wire.End):
                break
        assert count == pieces * piece + size
        assert time.monotonic() - began < limits.FOLLOWER_STALL_S_MAX


def test_input_is_written_among_very_many_descriptors(high: Callable[[int], int]) -> None:
    process = Process("x", Spec(["x"], {}, "/", User("root", 0, 0, (0,), "/", "/bin/sh")), Budget())
    read_fd, write_fd = os.pipe()
    process.stdin_fd = high(write_fd)
    os.set_blocking(process.stdin_fd, False)
    got = bytearray()

    def read() -> None:
        while data := os.read(read_fd, 65536):
            got.extend(data)

    reader = threading.Timer(0.05, read)
    reader.start()
    process.write_stdin_all(bytes(300_000), 20)
    process.close_stdin()
    reader.join()
    os.close(read_fd)
    assert len(got) == 300_000


async def test_who_cannot_be_followed_is_not_started(link: GuestLink, tmp_path: Path) -> None:
    started = await link.call("process.start", {"argv": ["sleep", "60"], "detach": True})
    async with AsyncExitStack() as followers:
        for _ in range(limits.CONNECTIONS_MAX):
            stream = await followers.enter_async_context(link.stream("process.attach", {"id": started["id"]}))
            await stream.receive()  # it follows from now on
        with pytest.raises(errors.AtollError) as caught:
            await run(link, argv=["touch", str(tmp_path / "ran")])
        assert caught.value.code == "busy"
        assert not (tmp_path / "ran").exists()
        assert (await link.call("process.show", {"id": started["id"]}))["exit"] is None
        await link.call("process.signal", {"id": started["id"], "signal": "KILL"})
    assert (await run(link, argv=["echo", "x"]))[0] == b"x\n"


ROOT = User("root", 0, 0, (0,), "/", "/bin/sh")
ENV = {"PATH": os.environ["PATH"]}


class HereAndNow:
    """Starts programs by itself; the guest hears of it in the pump's thread, as ever."""

    def __init__(self, pump: Pump) -> None:
        self._pump = pump
        self.started: subprocess.Popen[bytes] | None = None

    def own_pids(self) -> set[int]:
        return {os.getpid()}

    def begin(
        self, _user: User, message: dict[str, Any], fds: list[int], on_start: Callable[[int, None], None]
    ) -> Callable[[], None]:
        stdin, stdout, stderr = fds
        self.started = started = subprocess.Popen(
            message["argv"], env=message["env"], stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True
        )
        told: list[BaseException | None] = []

        def tell() -> None:
            try:
                on_start(started.pid, None)
            except Refused as refused:
                told.append(refused)
            else:
                told.append(None)

        def wait_started() -> None:
            wait_until(lambda: told, 10)
            if told[0] is not None:
                raise told[0]

        self._pump.call(tell)
        return wait_started

    def wait_ended(self, table: Table) -> None:
        assert self.started is not None
        pid = self.started.pid
        status = self.started.returncode = os.waitpid(pid, 0)[1]
        self._pump.call(lambda: table.exited(pid, status, 0.0))
        wait_until(lambda: all(process.exit for process in table.all()), 10)


def test_input_may_take_longer_than_its_program_may_pause() -> None:
    """What counts is for how long nothing at all is read, not for how long the caller has been sending."""
    process = Process("x", Spec(["x"], {}, "/", ROOT), Budget())
    read_fd, process.stdin_fd = os.pipe()
    os.set_blocking(process.stdin_fd, False)

    def read() -> None:
        while os.read(read_fd, 65536):
            time.sleep(0.05)

    reader = threading.Thread(target=read)
    reader.start()
    began = time.monotonic()
    process.write_stdin_all(bytes(16 * 65536), 0.3)
    assert time.monotonic() - began > 0.3
    process.close_stdin()
    reader.join()
    os.close(read_fd)


async def test_a_program_that_does_not_read_its_input_is_waited_for_so_long(link: GuestLink) -> None:
    started = await link.call("process.start", {"argv": ["sleep", "30"], "stdin": True, "detach": True})
    async with link.stream("process.stdin", {"id": started["id"], "timeout_s": 0.3}) as stream:
        await stream.send(bytes(4 * limits.PIPE_BYTES))
        await stream.commit()
        with pytest.raises(errors.AtollError) as caught:
            await stream.receive()
    assert "does not read its input" in caught.value.message
    await link.call("process.signal", {"id": started["id"], "signal": "KILL"})


def test_a_program_whose_caller_cannot_follow_it_after_all_is_ended_and_leaves_nothing_behind() -> None:
    pump = Pump()
    pump.start()
    table = Table(pump)
    workers = HereAndNow(pump)
    table.workers = workers  # type: ignore[assignment]

    def refuse(_process: Process) -> None:
        raise Refused("busy", "there is no room")

    with pytest.raises(Refused, match="no room"):
        table.start(Spec(["sh", "-c", "echo out; exec sleep 60"], ENV, "/", ROOT), refuse)
    (process,) = table.all()
    workers.wait_ended(table)
    assert process.exit is not None
    assert process.exit["signal"] == signal.SIGTERM
    wait_until(lambda: all(stream.ended for stream in process.streams.values()), 10)


def test_an_ended_program_is_not_kept_for_its_time_limit() -> None:
    pump = Pump()
    pump.start()
    table = Table(pump)
    workers = HereAndNow(pump)
    table.workers = workers  # type: ignore[assignment]
    process = weakref.ref(table.start(Spec(["true"], ENV, "/", ROOT, timeout_s=3600)))
    workers.wait_ended(table)
    table.forget_finished()
    wait_until(lambda: gc.collect() >= 0 and process() is None, 10)
