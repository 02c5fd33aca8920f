"""Large files with flat memory, signed addresses, watches, and `atoll sandbox cp`."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest

from atoll import AsyncSandbox, AtollError, Sandbox
from atoll.client import FileChanged, FileOverflow
from atoll.model import limits
from atoll.testing.server import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.real

GROWTH_BYTES_MAX = 48 * limits.MIB


@pytest.fixture(scope="module")
def sandbox(server: Server) -> Iterator[Sandbox]:
    with server.create("base", timeout_s=600) as sandbox:
        yield sandbox


def resident_bytes(pid: int | str) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def test_a_gigabyte_each_way_with_flat_memory(sandbox: Sandbox, server: Server, tmp_path: Path) -> None:
    size = limits.GIB
    with (tmp_path / "large").open("wb") as file:
        file.truncate(size)
        file.seek(size - 3)
        file.write(b"end")
    sandbox.files.write("large", bytes(limits.MIB))  # what a first transfer loads is not what a large one needs
    sandbox.files.read_bytes("large")
    before = resident_bytes(server.pid), resident_bytes("self")
    largest = [0, 0]

    def look(_done: int, _total: int | None) -> None:
        largest[0] = max(largest[0], resident_bytes(server.pid))
        largest[1] = max(largest[1], resident_bytes("self"))

    assert sandbox.files.upload(tmp_path / "large", "large", on_progress=look).size == size
    assert sandbox.files.read_bytes("large", offset=size - 3) == b"end"
    received = 0
    for data in sandbox.files.stream("large"):
        received += len(data)
        look(received, size)
    assert received == size
    sandbox.files.remove("large")
    assert largest[0] - before[0] < GROWTH_BYTES_MAX
    assert largest[1] - before[1] < GROWTH_BYTES_MAX


def test_signed_addresses_open_one_file_for_one_method(sandbox: Sandbox) -> None:
    sandbox.files.write("s/one.html", "<script>")
    sandbox.files.write("s/two", "2")
    url = sandbox.files.download_url("s/one.html")
    answer = httpx2.get(url)
    assert (answer.status_code, answer.content) == (200, b"<script>")
    assert answer.headers["content-disposition"].startswith("attachment")
    assert httpx2.put(url, content=b"x").json()["code"] == "invalid_signature"
    assert httpx2.get(url.replace("token=", "token=A")).json()["code"] == "invalid_signature"
    assert httpx2.get(url + "&path=s/two").json()["code"] == "invalid_query"
    put = sandbox.files.upload_url("s/new", user="root")
    assert httpx2.put(put, content=b"123").json() == {"path": "/root/s/new", "size": 3}
    assert httpx2.get(put).status_code == 401
    assert sandbox.files.read("/root/s/new", user="root") == "123"
    missing = httpx2.get(sandbox.files.download_url("s/missing"))
    assert (missing.status_code, missing.json()["code"]) == (404, "not_found")
    denied = httpx2.get(sandbox.files.download_url("/etc/shadow"))
    assert (denied.status_code, denied.json()["code"]) == (403, "permission_denied")


def test_signed_addresses_expire(sandbox: Sandbox) -> None:
    sandbox.files.write("s/short", "x")
    url = sandbox.files.download_url("s/short", expires_s=1)
    wait_until(lambda: httpx2.get(url).status_code == 401, 5, "the address expires")
    assert httpx2.get(url).json()["code"] == "url_expired"
    for wrong in (0, -1, limits.FILE_URL_S_MAX + 1):
        with pytest.raises(AtollError) as caught:
            sandbox.files.download_url("s/short", expires_s=wrong)
        assert caught.value.code == "invalid_expiry"


def test_signed_addresses_outlive_the_server_but_not_the_sandbox(make_server: Callable[..., Server]) -> None:
    server = make_server()
    sandbox = server.create("base")
    sandbox.files.write("a", "x")
    path = sandbox.files.download_url("a").removeprefix(server.url)
    assert (server.data / "link-secret").stat().st_mode & 0o777 == 0o600
    server.stop()
    server.start()
    assert httpx2.get(server.url + path).content == b"x"
    server.connect(sandbox.id).kill()
    assert httpx2.get(server.url + path).json()["code"] == "not_running"


def test_every_change_is_told(sandbox: Sandbox) -> None:
    sandbox.files.mkdir("w")
    with sandbox.files.watch("w", recursive=True) as changes:
        sandbox.files.write("w/whole", "1")
        sandbox.commands.run(
            ["sh", "-c", "mkdir -p w/a/b && echo x > w/a/b/c && mv w/a/b/c w/d && rm -r w"], check=True
        )
        seen = [change for change in changes if isinstance(change, FileChanged)]
    told = [(change.change, change.path.removeprefix("/home/user/w/")) for change in seen]
    assert told[0] == ("written", "whole")  # and nothing of how it came to be
    for wanted in [("created", "a"), ("created", "a/b"), ("moved_to", "d"), ("removed", "d"), ("removed", "a")]:
        assert wanted in told
    moved = [change.cookie for change in seen if change.change.startswith("moved")]
    assert len(moved) in (1, 2)
    assert len(set(moved)) == 1


def test_lost_changes_are_told_as_lost(sandbox: Sandbox) -> None:
    """More changes than may wait for a reader who does not read: one of the events says so."""
    folder = "flood" + ("/" + "n" * 250) * 14
    sandbox.files.mkdir(folder)
    with sandbox.files.watch(folder) as changes:
        code = "import os, sys; os.chdir(sys.argv[1])\nfor i in range(6000): open(str(i % 9), 'w').close()"
        sandbox.commands.run(["python3", "-c", code, folder], check=True)
        sandbox.files.remove("flood", recursive=True)
        assert any(isinstance(change, FileOverflow) for change in changes)


def test_a_watch_ends_with_its_sandbox(server: Server) -> None:
    sandbox = server.create("base")
    with sandbox.files.watch(".") as changes:
        killing = threading.Thread(target=server.connect(sandbox.id).kill)
        killing.start()
        with pytest.raises(AtollError):
            list(changes)
        killing.join()


def test_only_a_folder_can_be_watched(sandbox: Sandbox) -> None:
    for path, code in (("/etc/passwd", "not_directory"), ("/no/such", "not_found"), ("/root", "permission_denied")):
        with pytest.raises(AtollError) as caught, sandbox.files.watch(path):
            pass
        assert caught.value.code == code


@pytest.mark.anyio
async def test_the_same_without_waiting_in_line(server: Server, tmp_path: Path) -> None:
    """The asynchronous SDK, which is the one that is written by hand."""
    (tmp_path / "in/sub").mkdir(parents=True)
    (tmp_path / "in/sub/f").write_bytes(os.urandom(300_000))
    async with await AsyncSandbox.create("base", url=server.url, api_key=server.key) as sandbox:
        files = sandbox.files
        async with files.watch("/home/user", recursive=True) as changes:
            assert await files.write_many([("a", b"1"), ("b/c", "2")]) == 2
            assert (await anext(changes)) == FileChanged(change="written", path="/home/user/a", directory=False)
        assert (await files.push(tmp_path / "in", "in")).entries == 2
        assert (await files.pull("in", tmp_path / "out")).bytes == 300_000
        assert (tmp_path / "out/sub/f").read_bytes() == (tmp_path / "in/sub/f").read_bytes()
        assert len(b"".join([data async for data in files.pack("in", format="tar.gz")])) > 300_000
        told: list[tuple[int, int | None]] = []
        await files.upload(tmp_path / "in/sub/f", "f", on_progress=lambda done, total: told.append((done, total)))
        await files.download("f", tmp_path / "back", on_progress=lambda done, total: told.append((done, total)))
        assert told[-1] == (300_000, 300_000)
        assert httpx2.get(await files.download_url("b/c")).content == b"2"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def run_cp(server: Server, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "atoll", "sandbox", "cp", *arguments],
        env={**os.environ, "ATOLL_URL": server.url, "ATOLL_API_KEY": server.key},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_cp_copies_files_and_folders_both_ways(sandbox: Sandbox, server: Server, tmp_path: Path) -> None:
    (tmp_path / "tree/sub").mkdir(parents=True)
    (tmp_path / "tree/sub/f").write_text("f")
    (tmp_path / "run.sh").write_text("echo hi")
    (tmp_path / "run.sh").chmod(0o755)
    ident = sandbox.id
    for arguments in (
        ("run.sh", f"{ident}:cp/"),
        ("tree", f"{ident}:cp/tree"),  # becomes it
        ("tree", f"{ident}:cp/tree"),  # is there by now: goes inside
        (f"{ident}:cp/run.sh", "."),
        (f"{ident}:cp", "back"),
    ):
        done = run_cp(server, *arguments, cwd=tmp_path)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert sandbox.commands.run("./cp/run.sh").stdout == "hi\n"
    assert (tmp_path / "back/tree/sub/f").read_text() == "f"
    assert (tmp_path / "back/tree/tree/sub/f").read_text() == "f"
    assert os.access(tmp_path / "run.sh", os.X_OK)
    assert run_cp(server, "a", "b", cwd=tmp_path).returncode == 2
    missing = run_cp(server, f"{ident}:nothing", "x", cwd=tmp_path)
    assert (missing.returncode, "not_found" in missing.stderr) == (1, True)
    for arguments in (("nothing", f"{ident}:x"), (f"{ident}:cp/run.sh", "run.sh/x")):  # the latter is below a file
        refused = run_cp(server, *arguments, cwd=tmp_path)
        assert (refused.returncode, refused.stderr.startswith("error:"), "local_file" in refused.stderr) == (
            1,
            True,
            True,
        )


def test_cp_shows_its_progress_on_a_terminal(sandbox: Sandbox, server: Server, tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(bytes(3 * limits.MIB))
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "atoll", "sandbox", "cp", "data", f"{sandbox.id}:data"],
        env={**os.environ, "ATOLL_URL": server.url, "ATOLL_API_KEY": server.key},
        cwd=tmp_path,
        stderr=theirs,
    ) as running:
        assert running.wait(60) == 0
    os.close(theirs)
    shown = os.read(ours, 4096).decode()
    os.close(ours)
    assert "3MiB of 3MiB (100%)" in shown
