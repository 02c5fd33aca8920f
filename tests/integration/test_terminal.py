"""Terminals of a real sandbox, through the SDK and through `atoll shell` on a pseudo-terminal of our own."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from atoll import Sandbox
from atoll.client import Terminal
from atoll.model.errors import Conflict, InvalidArgument
from atoll.testing.server import Server
from tests.screen import Screen
from tests.waiting import wait_until

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def sandbox(server: Server) -> Iterator[Sandbox]:
    with server.create("base", timeout_s=600) as made:
        yield made


class Watcher:
    """Reads a terminal in a thread onto a screen."""

    def __init__(self, terminal: Terminal, cols: int = 80, rows: int = 24) -> None:
        self.terminal = terminal
        self.screen = Screen(cols, rows)
        self.raw = b""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        for data in self.terminal:
            self.raw += data
            self.screen.feed(data)

    def wait(self, text: str, within_s: float = 15) -> None:
        deadline_s = time.monotonic() + within_s
        while text not in self.screen:
            assert time.monotonic() < deadline_s, (text, self.screen.lines)
            time.sleep(0.01)

    def join(self) -> None:
        self._thread.join(20)
        assert not self._thread.is_alive()


def test_pythons_prompt(sandbox: Sandbox) -> None:
    watcher = Watcher(sandbox.terminals.open(["python3"]))
    watcher.wait(">>>")
    watcher.terminal.write("6*7\n")
    watcher.wait("42")
    watcher.terminal.write("import time; time.sleep(60)\n")
    watcher.wait("time.sleep(60)")
    watcher.terminal.write(b"\x03")
    watcher.wait("KeyboardInterrupt")
    watcher.terminal.write("import sys; sys.exit(3)\n")
    watcher.join()
    assert watcher.terminal.exited is not None
    assert watcher.terminal.exited.exit_code == 3


def test_a_full_screen_editor_and_a_second_person(sandbox: Sandbox) -> None:
    """Both see the same screen; who comes late sees it too; the file is what was typed."""
    first = Watcher(sandbox.terminals.open("vim.tiny -u NONE note.txt", cols=60, rows=12, tag="edit"), 60, 12)
    first.wait("note.txt")
    first.terminal.write("ihello from vim\x1b")
    first.wait("hello from vim")
    late = Watcher(sandbox.terminals.attach("tag:edit"), 60, 12)
    late.wait("hello from vim")
    late.terminal.write("oand a second\x1b")
    first.wait("and a second")
    assert first.screen.lines[:2] == ["hello from vim", "and a second"]
    late.terminal.write(":wq\r")
    first.join()
    late.join()
    assert sandbox.files.read("note.txt") == "hello from vim\nand a second\n"


def test_after_the_network_broke_the_screen_goes_on(sandbox: Sandbox) -> None:
    watcher = Watcher(sandbox.terminals.open("less /etc/passwd", cols=70, rows=10), 70, 10)
    watcher.wait("root:x:0")
    broken = watcher.terminal._socket
    assert broken is not None
    broken._connection.socket.shutdown(2)
    deadline_s = time.monotonic() + 10
    while watcher.terminal._socket in (broken, None):
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    watcher.terminal.write("G")
    watcher.wait("(END)")
    watcher.terminal.write("q")
    watcher.join()


def test_size_and_signal(sandbox: Sandbox) -> None:
    watcher = Watcher(sandbox.terminals.open("trap 'stty size' WINCH; echo ready; while :; do sleep 0.05; done"))
    watcher.wait("ready")
    watcher.terminal.resize(101, 33)
    watcher.wait("33 101")
    watcher.terminal.signal("KILL")
    watcher.join()
    assert watcher.terminal.exited is not None
    assert watcher.terminal.exited.signal == 9


def test_what_is_refused_is_told_and_the_terminal_goes_on(server: Server, sandbox: Sandbox) -> None:
    terminal = sandbox.terminals.open("echo ready; read line; echo got $line")
    with pytest.raises(InvalidArgument):
        terminal.signal("NONESUCH")
    for cols, rows in ((0, 24), (80, 5000)):
        with pytest.raises(InvalidArgument):
            terminal.resize(cols, rows)
    address = f"ws{server.url[4:]}/v1/sandboxes/{sandbox.id}/terminals/{terminal.id}"
    with connect(address, additional_headers={"X-API-Key": server.key}) as socket:
        for order in ({"type": "resize", "cols": 0, "rows": 24}, {"type": "signal", "signal": "NONESUCH"}):
            socket.send(json.dumps(order))
            told = next(json.loads(said) for said in socket if isinstance(said, str) and "refused" in said)
            assert (told["type"], told["problem"]["code"]) == ("refused", "invalid_argument")
    terminal._send(json.dumps({"type": "resize", "cols": 0, "rows": 24}))
    terminal.write("it\n")
    assert b"got it" in b"".join(terminal)
    assert isinstance(terminal.refused, InvalidArgument)
    assert terminal.exited is not None


def test_keys_wake_a_sandbox_that_was_put_in_standby(sandbox: Sandbox) -> None:
    """Whoever sits at a terminal does not know that a deadline has passed."""
    watcher = Watcher(sandbox.terminals.open(["cat"]))
    watcher.terminal.write("one\n")
    watcher.wait("one")
    sandbox.standby()
    watcher.terminal.write("two\n")
    watcher.wait("two")
    assert sandbox.info().state == "running"
    watcher.terminal.write(b"\x04")
    watcher.join()


def test_a_ticket_opens_once_and_nothing_else(server: Server, sandbox: Sandbox) -> None:
    terminal = sandbox.terminals.open(["cat"])
    path = f"/v1/sandboxes/{sandbox.id}/terminals/{terminal.id}"
    address = server.url.replace("http", "ws", 1) + path
    for query in ("", "?ticket=wrong"):
        with pytest.raises(InvalidStatus) as caught:
            connect(address + query)
        assert caught.value.response.status_code == 401
    ticket = server.request("POST", f"{path}/ticket").json()["ticket"]
    with connect(f"{address}?ticket={ticket}") as socket:
        assert '"attached"' in str(socket.recv())
        socket.send(b"typed\n")
        assert b"typed" in socket.recv()
        socket.send('{"type":"nonesuch"}')
        answer = socket.recv()
        while isinstance(answer, bytes):
            answer = socket.recv()
        assert '"failed"' in answer
    with pytest.raises(InvalidStatus):
        connect(f"{address}?ticket={ticket}")
    assert server.request("GET", path).json()["code"] == "upgrade_required"
    with pytest.raises(Conflict):
        sandbox.terminals.attach(sandbox.commands.start("sleep 60").id)
    terminal.signal("KILL")
    terminal.wait()


def test_a_person_whose_key_is_revoked_sits_there_no_longer(server: Server, sandbox: Sandbox) -> None:
    terminal = sandbox.terminals.open("cat")
    made = server.request("POST", "/v1/keys", json={"name": "x"}).json()
    address = f"{server.url}/v1/sandboxes/{sandbox.id}/terminals/{terminal.id}".replace("http", "ws", 1)
    with connect(address, additional_headers={"X-API-Key": made["key"]}) as socket:
        assert '"attached"' in str(socket.recv(5))
        server.request("DELETE", f"/v1/keys/{made['view']['id']}")
        assert '"key_revoked"' in str(socket.recv(5))
        with pytest.raises(ConnectionClosed):
            socket.recv(5)
    terminal.write("on\n")  # other keys' go on
    terminal.signal("KILL")
    terminal.wait()


class Window:
    """`atoll shell` in a window: a real process on a real pseudo-terminal."""

    def __init__(self, server: Server, *arguments: str, cols: int = 80, rows: int = 24) -> None:
        self.screen = Screen(cols, rows)
        master, slave = pty.openpty()
        self._fd = master
        fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
        environment = {**os.environ, "ATOLL_URL": server.url, "ATOLL_API_KEY": server.key, "TERM": "xterm-256color"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "atoll", "shell", *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
            start_new_session=True,
        )
        os.close(slave)

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def resize(self, cols: int, rows: int) -> None:
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
        self.process.send_signal(signal.SIGWINCH)

    def wait(self, text: str, within_s: float = 20) -> None:
        deadline_s = time.monotonic() + within_s
        while text not in self.screen:
            assert time.monotonic() < deadline_s, (text, self.screen.lines)
            self._read()

    def _read(self) -> None:
        if select.select([self._fd], [], [], 0.05)[0]:
            with contextlib.suppress(OSError):
                self.screen.feed(os.read(self._fd, 65536))

    def end(self) -> int:
        deadline_s = time.monotonic() + 20
        while self.process.poll() is None:
            assert time.monotonic() < deadline_s, self.screen.lines
            self._read()
        self._read()
        os.close(self._fd)
        return self.process.returncode


def test_atoll_shell_is_a_terminal(server: Server, sandbox: Sandbox) -> None:
    """A login shell with colours, Ctrl-C, the window's size and its change, and the exit code at the end."""
    window = Window(server, sandbox.id, cols=90, rows=20)
    window.wait("$")
    window.type("stty size; whoami; echo T=$TERM\r")
    window.wait("20 90")
    window.wait("T=xterm-256color")
    window.type("sleep 100\r")
    wait_until(lambda: sandbox.commands.run(["pgrep", "-fx", "sleep 100"]).ok, 10, "it sleeps")
    window.type("\x03")
    window.type("echo went on $?\r")
    window.wait("went on 130")
    window.resize(100, 30)
    # What was typed may overtake the word about the window.
    window.type("until [ $(stty size | cut -c1-2) = 30 ]; do sleep 0.05; done; echo size $(stty size)\r")
    window.wait("size 30 100")
    window.type("exit 7\r")
    assert window.end() == 7


def test_leaving_and_coming_back(server: Server, sandbox: Sandbox) -> None:
    window = Window(server, "--tag", "stay", sandbox.id, "X=kept; bash --norc")
    window.wait("$")
    window.type("Y=there; echo mark-$Y\r")
    window.wait("mark-there")
    window.type("\r")
    time.sleep(0.3)
    window.type("~")
    time.sleep(0.2)
    window.type(".")
    assert window.end() == 0
    again = Window(server, "--attach", "tag:stay", sandbox.id)
    again.wait("mark-there")
    again.type("echo again-$Y\r")
    again.wait("again-there")
    again.type("exit 4\r")
    assert again.end() == 4
