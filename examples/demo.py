"""A tour of one sandbox, from the start of a server to its end, with the time that each step took.

Uses the server that runs on the data directory (ATOLL_DATA, or /var/lib/atoll), and leaves it running; if there is none
it starts one on a free port and stops it at the end. What it claims it checks: the first thing that is not so ends it
with a line that says what, and a code other than 0.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from atoll import AtollError, Sandbox

T = TypeVar("T")

ATOLL = str(Path(sys.executable).parent / "atoll")
DATA = Path(os.environ.get("ATOLL_DATA") or "/var/lib/atoll")
START_S_MAX = 60.0
STOP_S_MAX = 30.0


class Broken(Exception):
    """Something is not as this program says it is."""


def step(title: str, work: Callable[[], T]) -> T:
    """Do one thing and say how long it took."""
    started_s = time.perf_counter()
    answer = work()
    print(f"  {title:<58} {(time.perf_counter() - started_s) * 1000:9.1f} ms", flush=True)
    return answer


def expect(truth: bool, otherwise: str) -> None:
    if not truth:
        raise Broken(otherwise)


def running_url() -> str | None:
    """The address of the server that runs on the data directory, if it answers."""
    try:
        url = str(json.loads((DATA / "server.json").read_text())["url"])
        host, port = url.removeprefix("http://").rsplit(":", 1)
        socket.create_connection((host.strip("[]"), int(port)), timeout=2).close()
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return url


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def start_server(log: Path) -> subprocess.Popen[bytes]:
    command = [ATOLL, "serve", "--listen", f"127.0.0.1:{free_port()}", "--data", str(DATA)]
    with log.open("wb") as output:
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
    deadline_s = time.monotonic() + START_S_MAX
    while running_url() is None:
        if server.poll() is not None or time.monotonic() > deadline_s:
            server.kill()
            server.wait()
            raise Broken(f"the server did not start:\n{log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.02)
    return server


def stop_server(server: subprocess.Popen[bytes]) -> None:
    server.send_signal(signal.SIGTERM)
    try:
        code = server.wait(STOP_S_MAX)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
        raise Broken(f"the server did not stop within {STOP_S_MAX:.0f} s") from None
    expect(code == 0, f"the server ended with exit code {code}")


def collect() -> list[dict[str, str]]:
    """What `atoll doctor --gc` had to remove from the host: nothing, if all was cleaned up."""
    done = subprocess.run(  # noqa: TID251 - a program of our own, in a program for people
        [ATOLL, "doctor", "--gc", "--json"],
        env={**os.environ, "ATOLL_DATA": str(DATA)},
        capture_output=True,
        timeout=120,
        check=False,
    )
    expect(done.returncode == 0, f"atoll doctor --gc failed: {done.stderr.decode(errors='replace').strip()}")
    return list(json.loads(done.stdout)["removed"])


@contextlib.contextmanager
def server() -> Iterator[None]:
    found = running_url()
    if found is not None:
        print(f"using the server at {found}, which stays")
        yield
        return
    print(f"no server runs on {DATA}: starting one")
    with tempfile.TemporaryDirectory(prefix="atoll-demo-") as folder:
        log = Path(folder) / "server.log"
        process = step("start the server", lambda: start_server(log))
        try:
            yield
        finally:
            if process.poll() is None:
                step("stop the server", lambda: stop_server(process))
    left = step("look for anything left on the host", collect)
    expect(not left, f"the server left {len(left)} things on the host, the first: {left[:1]}")


def show_commands(sb: Sandbox) -> None:
    result = step("run Python", lambda: sb.commands.run(["python3", "-c", "print(6 * 7)"], check=True))
    expect(result.stdout == "42\n", f"Python says that 6 * 7 is {result.stdout!r}")
    step("run `true`", lambda: sb.commands.run("true", check=True))

    pieces: list[float] = []
    line = "for i in 1 2 3; do echo $i; sleep 0.1; done"

    def arrived(_: str) -> None:
        pieces.append(time.perf_counter())

    step("stream three lines, 100 ms apart", lambda: sb.commands.run(line, on_stdout=arrived))
    expect(len(pieces) == 3 and pieces[2] - pieces[0] > 0.15, "the output did not come while the command ran")


def show_files(sb: Sandbox) -> None:
    text = "written from outside: ü\n"
    step("write a file", lambda: sb.files.write("/home/user/note.txt", text))
    back = step("read it back", lambda: sb.files.read("/home/user/note.txt"))
    expect(back == text, "the file is not what was written")
    inside = sb.commands.run(["cat", "/home/user/note.txt"])
    expect(inside.stdout == text, "a command inside does not see the file")


REACH = """
import socket, sys
for address in sys.argv[2:]:
    try:
        with socket.create_connection((address, int(sys.argv[1])), timeout=1) as connection:
            connection.sendall(b"hello")
            connection.recv(1)
    except OSError:
        pass
    print("tried", address)
"""


def host_addresses() -> list[str]:
    """The addresses by which this machine can be reached; connecting a UDP socket sends nothing."""
    found = {"127.0.0.1"}
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        found.add(probe.getsockname()[0])
    return sorted(found)


def show_network(sb: Sandbox) -> None:
    with socket.create_server(("0.0.0.0", 0)) as listener:
        port = int(listener.getsockname()[1])
        addresses = host_addresses()
        for address in addresses:  # they are open from here, so what is closed from inside is closed by the sandbox
            socket.create_connection((address, port), timeout=2).close()
            listener.accept()[0].close()
        argv = ["python3", "-c", REACH, str(port), *addresses, "10.0.0.1"]
        result = step("try to reach this machine from inside", lambda: sb.commands.run(argv, check=True))
        listener.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            listener.accept()
            raise Broken("this machine was reached from inside")
    expect(result.stdout.count("tried") == len(addresses) + 1, f"the attempt did not run: {result.stdout}")


def show_isolation(sb: Sandbox) -> None:
    mark = secrets.token_hex(8)
    with tempfile.NamedTemporaryFile(prefix=f"atoll-canary-{mark}-", dir="/var/tmp") as canary:
        path = canary.name
        expect(not sb.files.exists(path), "a file of the host is visible inside")
        found = sb.commands.run(f"ls -a /tmp /var/tmp /root / 2>/dev/null | grep -c {mark}")
        expect(found.stdout.strip() == "0", "a file of the host is visible inside")

    with subprocess.Popen([sys.executable, "-c", f"import time; time.sleep(600)  # {mark}"]) as decoy:
        line = "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"
        try:
            seen = step("look for the host's processes from inside", lambda: sb.commands.run(line))
        finally:
            decoy.kill()
    expect(mark not in seen.stdout, "a process of the host is visible inside")

    kernel = sb.commands.run(["uname", "-r"]).stdout.strip()
    expect("gvisor" in kernel.lower() and kernel != platform.release(), f"the kernel inside is {kernel!r}")
    print(f"    kernel here {platform.release()}, inside {kernel}")


POOL_S_MAX = 120.0


def fill_pool() -> None:
    """Wait until a sandbox is ready for an owner: the first start makes the warm image that later ones find."""
    headers = {"authorization": f"Bearer {(DATA / 'key').read_text().strip()}"}
    deadline_s = time.monotonic() + POOL_S_MAX
    while time.monotonic() < deadline_s:
        url = running_url()
        expect(url is not None, "the server has ended")
        request = urllib.request.Request(f"{url}/v1/node", headers=headers)
        with urllib.request.urlopen(request, timeout=10) as answer:
            warm = json.load(answer)["warm"]
        if warm.get("code", {}).get("live"):
            return
        time.sleep(0.05)
    raise Broken("no sandbox became ready in advance")


def tour() -> None:
    with server():
        if os.environ.get("ATOLL_WARM_SIZE") != "0":
            step("fill the pool", fill_pool)
        sb = step("create a sandbox", Sandbox.create)
        try:
            where = ", ".join(f"{name} {ms:.0f} ms" for name, ms in sb.steps_ms.items())
            print(f"    from: {sb.way}; {where}")
            show_commands(sb)
            show_files(sb)
            show_network(sb)
            show_isolation(sb)
        finally:
            step("kill it", sb.kill)
        expect(sb.info().state == "killed", "the sandbox is not on record as killed")
        sb.close()


def main() -> int:
    started_s = time.perf_counter()
    try:
        tour()
    except Broken as broken:
        print(f"demo failed: {broken}", file=sys.stderr)
        return 1
    except AtollError as error:
        print(f"demo failed: {error.message} ({error.code}). {error.hint}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(f"all as promised, in {time.perf_counter() - started_s:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
