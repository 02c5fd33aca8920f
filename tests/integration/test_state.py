"""Sleep, waking, snapshots, forks and rollback, with the real runtime."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from atoll import Sandbox, Snapshot
from atoll.client import SnapshotView
from atoll.model.errors import AtollError, Conflict, InvalidArgument, NotFound
from atoll.testing.server import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.real

MakeServer = Callable[..., Server]

# Holds a number in memory and on disk. Each time round it looks whether the two agree, so a copy that was made with
# an older or newer disk than its memory finds out by itself, at its first step.
COUNTER = """
import os, time
number = 0
file = os.open("/home/user/number", os.O_RDWR | os.O_CREAT)
os.pwrite(file, b"%012d" % number, 0)
while True:
    found = int(os.pread(file, 12, 0))
    if found != number:
        open("/home/user/apart", "w").write(f"{number} in memory, {found} on disk")
        break
    if os.path.exists("/home/user/stop"):
        os.unlink("/home/user/stop")
        break
    number += 1
    os.pwrite(file, b"%012d" % number, 0)
    time.sleep(0.0005)
"""

SERVER = "python3 -m http.server 8000 --directory /home/user"


@pytest.fixture
def sandbox(server: Server) -> Iterator[Sandbox]:
    with server.create(timeout_s=600, name="worker") as sandbox:
        yield sandbox


def delete(server: Server, snapshot: SnapshotView) -> None:
    Snapshot.delete(snapshot, url=server.url, api_key=server.key)


def goes_on(sandbox: Sandbox) -> None:
    """The loop that counts in a file still counts."""
    first = int(sandbox.files.read("count") or 0)
    wait_until(lambda: int(sandbox.files.read("count") or 0) > first, 5, "the loop goes on")


def fetch(sandbox: Sandbox, path: str) -> str:
    code = f"import urllib.request as u; print(u.urlopen('http://127.0.0.1:8000/{path}', timeout=5).read().decode())"
    return sandbox.commands.run(["python3", "-c", code]).stdout.strip()


def test_a_paused_sandbox_survives_a_kill_of_the_server(make_server: MakeServer) -> None:
    """A web server, a variable of a live interpreter, a shell loop and a half-read file are as they were."""
    server = make_server()
    sandbox = server.create(timeout_s=600, env={"KEPT": "yes"})
    sandbox.commands.start(SERVER)
    sandbox.commands.start("i=0; while true; do i=$((i+1)); echo $i > count; sleep 0.02; done")
    sandbox.files.write("lines", "".join(f"line {n}\n" for n in range(1000)))
    reader = "f = open('lines'); f.readline()\nimport time, os\nx = {'frame': [1, 2]}\n"
    reader += "while not os.path.exists('go'): time.sleep(0.02)\nprint(f.readline().strip(), x)"
    half_read = sandbox.commands.start(["python3", "-u", "-c", reader])
    sandbox.files.write("page", "hello")
    wait_until(lambda: fetch(sandbox, "page") == "hello", 10)
    for round_ in range(3):
        sandbox.files.write(f"new{round_}", str(round_))
        assert sandbox.pause().state == "paused"
        wait_until(lambda: not server.boxes(), 10, "nothing of it runs")
        with pytest.raises(Conflict) as caught:
            sandbox.commands.run("true")
        assert caught.value.code == "not_running"
        server.kill()
        server.start()
        sandbox = server.connect(sandbox.id)
        assert sandbox.info().state == "paused"
        assert sandbox.resume().state == "running"
        goes_on(sandbox)
        assert fetch(sandbox, "page") == "hello"
        assert [sandbox.files.read(f"new{n}") for n in range(round_ + 1)] == [str(n) for n in range(round_ + 1)]
    sandbox.files.write("go", "")
    assert sandbox.commands.attach(half_read.id).wait().stdout == "line 1 {'frame': [1, 2]}\n"
    assert sandbox.commands.run("echo $KEPT").stdout == "yes\n"
    clock = float(sandbox.commands.run("date +%s.%N").stdout)
    assert abs(clock - time.time()) < 2
    assert not list((server.data / "pool/snapshots").iterdir())
    assert not [path for path in (server.data / "images").iterdir() if not path.name.startswith("warm-")]


def test_two_who_resume_at_once_get_one_sandbox(server: Server, sandbox: Sandbox) -> None:
    sandbox.pause()
    answers: list[str] = []

    def resume() -> None:
        answers.append(server.connect(sandbox.id).resume().state)

    threads = [threading.Thread(target=resume) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == ["running"] * 4
    assert len(server.boxes()) == 1


def test_a_pause_without_memory_boots_afresh(sandbox: Sandbox) -> None:
    sandbox.files.write("kept", "on disk")
    process = sandbox.commands.start(["sleep", "1000"])
    sandbox.pause(memory=False)
    sandbox.resume()
    assert sandbox.files.read("kept") == "on disk"
    assert process.id not in [view.id for view in sandbox.commands.list()]


def test_one_that_has_used_up_its_memory_is_copied_and_sleeps_like_any_other(server: Server) -> None:
    """Its image goes by way of memory, which counts as its own: that must not end it."""
    with server.create(memory="256MiB", timeout_s=600) as sandbox:
        hoard = "import os, time; kept = os.urandom(1_000_000) * 150; open('ready', 'w').close(); time.sleep(600)"
        process = sandbox.commands.start(["python3", "-c", hoard])
        wait_until(lambda: sandbox.files.exists("ready"), 20)
        delete(server, sandbox.snapshot())
        sandbox.pause()
        sandbox.resume()
        assert process.id in [view.id for view in sandbox.commands.list()]


def test_the_quota_does_not_begin_anew_with_a_pause(server: Server) -> None:
    with server.create(disk="64MiB", timeout_s=600) as sandbox:
        for n in range(3):
            sandbox.commands.run(f"head -c 25000000 /dev/urandom > big{n}; sync")
            sandbox.pause()
            sandbox.resume()
        full = sandbox.commands.run("ls -l big2; head -c 25000000 /dev/urandom > big3")
        assert full.exit_code != 0, "100 MB do not fit into 64 MiB, however often it sleeps"
        assert sandbox.commands.run("rm big*; echo fine").stdout == "fine\n"


def test_memory_and_disk_agree_in_every_snapshot_and_fork(server: Server, sandbox: Sandbox) -> None:
    """A number that changes a thousand times a second is the same in both, whenever it is caught."""
    sandbox.commands.start(["python3", "-c", COUNTER])
    wait_until(lambda: sandbox.files.exists("number"), 10)
    for _ in range(4):
        (fork,) = sandbox.fork()
        with fork:
            check_counter(fork)
    snapshot = sandbox.snapshot()
    with server.create(snapshot, timeout_s=600) as again:  # type: ignore[arg-type]
        assert again.info().snapshot_id == snapshot.id
        check_counter(again)
    delete(server, snapshot)
    assert sandbox.commands.run("echo on").stdout == "on\n"


def check_counter(sandbox: Sandbox) -> None:
    """The program in the copy has looked, found that they agree, and gone on."""
    first = int(sandbox.files.read("number"))
    wait_until(lambda: sandbox.files.exists("apart") or int(sandbox.files.read("number")) > first, 10)
    assert not sandbox.files.exists("apart"), sandbox.files.read("apart")
    sandbox.files.write("stop", "")
    wait_until(lambda: not sandbox.files.exists("stop"), 10)


def test_forks_differ_in_all_that_must_differ(server: Server, sandbox: Sandbox) -> None:
    before = server.boxes()
    look = "hostname; cat /etc/machine-id; python3 -c 'import uuid,os; print(uuid.uuid4(), os.urandom(8).hex())'"
    hardware = "fcntl.ioctl(socket.socket(), 0x8927, struct.pack('256s', b'eth0'))[18:24].hex()"  # SIOCGIFHWADDR
    look += f'; python3 -c "import fcntl,socket,struct; print({hardware})"'
    a, b = sandbox.fork(2)
    with a, b:
        seen = [one.commands.run(look).stdout.split() for one in (a, b, sandbox)]
        for column in range(5):
            assert len({row[column] for row in seen}) == 3
        assert len(server.boxes()) == len(before) + 2
        a.files.write("mine", "a")
        assert not b.files.exists("mine")
        assert not sandbox.files.exists("mine")
    wait_until(lambda: server.boxes() == before, 10)


def test_a_fork_that_cannot_be_made_does_not_spoil_the_others(server: Server, sandbox: Sandbox) -> None:
    with pytest.raises(InvalidArgument):
        sandbox.fork(0)
    sandbox.pause()
    (copy,) = sandbox.fork(1)
    with copy:
        assert copy.commands.run("echo copy").stdout == "copy\n"
    assert sandbox.info().state == "paused"
    sandbox.resume()


def test_rollback_in_place(server: Server, sandbox: Sandbox) -> None:
    sandbox.files.write("note", "before")
    process = sandbox.commands.start(["sleep", "1000"])
    snapshot = sandbox.snapshot("known-good")
    sandbox.files.write("note", "after")
    process.kill()
    assert sandbox.rollback(snapshot).state == "running"
    assert sandbox.files.read("note") == "before"
    assert process.id in [view.id for view in sandbox.commands.list() if view.running]
    assert len(server.boxes()) == 1
    sandbox.files.write("note", "again")
    sandbox.pause()
    sandbox.rollback("known-good")
    assert sandbox.files.read("note") == "before"
    with server.create(timeout_s=60) as other, pytest.raises(InvalidArgument) as caught:
        other.rollback(snapshot)
    assert caught.value.code == "other_sandbox"
    delete(server, snapshot)
    assert sandbox.files.read("note") == "before"


def test_snapshots_are_listed_named_kept_and_deleted(server: Server, sandbox: Sandbox) -> None:
    named = sandbox.snapshot("mine", memory=False)
    assert (named.has_memory, named.memory_bytes, named.sandbox_id) == (False, 0, sandbox.id)
    with pytest.raises(Conflict) as caught:
        sandbox.snapshot("mine", memory=False)
    assert caught.value.code == "name_taken"
    with pytest.raises(Conflict):
        sandbox.snapshot("base", memory=False)
    for _ in range(3):
        last = sandbox.snapshot(memory=False, keep_last=2)
    found = list(Snapshot.list(sandbox=sandbox.id, url=server.url, api_key=server.key))
    assert [view.name for view in found] == [None, None, "mine"]
    assert found[0] == last
    short = sandbox.snapshot(memory=False, expires_s=1)
    wait_until(lambda: _gone(server, short.id), 5, "it expires")
    with server.create("mine", timeout_s=60) as again:
        assert again.commands.run("echo booted").stdout == "booted\n"
        delete(server, named)
        assert again.commands.run("echo still").stdout == "still\n"
    for view in found[:2]:
        delete(server, view)
    with pytest.raises(NotFound):
        server.create("mine")
    assert not list((server.data / "pool/snapshots").iterdir())


def test_what_changed_is_shown_and_one_file_is_put_back(server: Server, sandbox: Sandbox) -> None:
    sandbox.files.write("kept", "same")
    sandbox.files.write("changed", "before")
    sandbox.files.write("removed", "gone soon")
    sandbox.commands.run(
        "chmod 640 changed; touch -d @12345 changed; mkdir -m 710 old; echo x > old/inside; "
        "ln -s /etc/passwd link; ln -s /etc way"
    )
    snapshot = sandbox.snapshot(memory=False)
    sandbox.commands.run("echo after > changed; rm removed; rm -r old; mkdir new; echo y > new/inside")
    changes = {(item.change, item.path) for item in sandbox.diff(snapshot).items if item.path.startswith("/home/user/")}
    home = "/home/user"
    later = sandbox.snapshot("later", memory=False)
    for between in (Snapshot.diff(snapshot, after, url=server.url, api_key=server.key) for after in (later, "later")):
        assert {(item.change, item.path) for item in between.items if item.path.startswith("/home/user/")} == changes
    assert Snapshot.diff(later, later, url=server.url, api_key=server.key).items == []
    delete(server, later)
    assert changes == {
        ("changed", f"{home}/changed"),
        ("removed", f"{home}/removed"),
        ("removed", f"{home}/old"),
        ("removed", f"{home}/old/inside"),
        ("added", f"{home}/new"),
        ("added", f"{home}/new/inside"),
    }
    assert sandbox.restore_file(snapshot, f"{home}/changed") == 6
    assert sandbox.commands.run("cat changed; stat -c '%U %a %Y' changed").stdout == "beforeuser 640 12345\n"
    sandbox.standby()
    assert sandbox.restore_file(snapshot, f"{home}/old/inside") == 2, "it wakes for that"
    shown = sandbox.commands.run("cat old/inside; stat -c '%U %a' old old/inside").stdout
    assert shown == "x\nuser 710\nuser 644\n"
    with pytest.raises(InvalidArgument):
        sandbox.restore_file(snapshot, f"{home}/link")
    with pytest.raises(InvalidArgument):
        sandbox.restore_file(snapshot, f"{home}/way/passwd")
    with pytest.raises(NotFound):
        sandbox.restore_file(snapshot, f"{home}/never")
    delete(server, snapshot)
    assert not list((server.data / "pool/snapshots").iterdir())


def _gone(server: Server, snapshot_id: str) -> bool:
    return server.request("GET", f"/v1/snapshots/{snapshot_id}").status_code == 404


def test_standby_wakes_on_the_next_call(make_server: MakeServer) -> None:
    server = make_server()
    sandbox = server.create(timeout_s=600)
    sandbox.commands.start("i=0; while true; do i=$((i+1)); echo $i > count; sleep 0.01; done")
    wait_until(lambda: sandbox.files.exists("count"), 5)
    assert sandbox.standby().state == "standby"
    assert sandbox.info().state == "standby"
    server.kill()
    server.start()
    again = server.connect(sandbox.id)
    assert again.info().state == "standby"
    first = int(again.files.read("count") or 0)
    assert again.info().state == "running"
    wait_until(lambda: int(again.files.read("count") or 0) > first, 5)
    again.standby()
    again.kill()
    assert again.info().state == "killed"
    again.close()


@pytest.mark.parametrize("asleep", [True, False])
def test_a_server_that_was_killed_while_it_put_one_to_sleep_finds_out_which(
    make_server: MakeServer, asleep: bool
) -> None:
    """What it left on record says neither; a sentry that is told to go on twice does not survive it."""
    server = make_server()
    sandbox = server.create(timeout_s=600)
    sandbox.files.write("note", "kept")
    sandbox.standby()
    if not asleep:
        sandbox.files.read("note")
    server.kill()
    (server.data / "run/boxes" / server.box_of(sandbox.id) / "standing").write_text("moving")
    server.start()
    again = server.connect(sandbox.id)
    again.standby()
    assert again.files.read("note") == "kept"
    assert again.info().state == "running"


@pytest.mark.parametrize(("action", "state"), [("pause", "paused"), ("standby", "standby")])
def test_at_the_deadline_it_sleeps_if_it_says_so(server: Server, action: str, state: str) -> None:
    with server.create(timeout_s=1.5, on_deadline=action, auto_resume=True) as sandbox:
        sandbox.files.write("kept", action)
        wait_until(lambda: sandbox.info().state == state, 10)
        assert sandbox.files.read("kept") == action, "a call wakes it"
        assert sandbox.info().state == "running"


def test_an_idle_sandbox_sleeps_and_a_busy_one_does_not(server: Server) -> None:
    with server.create(timeout_s=600, idle_timeout_s=1, on_deadline="standby") as idle:
        with server.create(timeout_s=600, idle_timeout_s=1, on_deadline="standby") as busy:
            stream = busy.commands.start(["sleep", "1000"])
            follower = threading.Thread(target=stream.wait, daemon=True)
            follower.start()
            wait_until(lambda: idle.info().state == "standby", 10)
            assert busy.info().state == "running"
            stream.kill()
            follower.join()


def test_a_program_that_prints_keeps_its_sandbox_awake(server: Server) -> None:
    """Nobody follows it; as soon as it is silent, the sandbox is idle."""
    with server.create(timeout_s=600, idle_timeout_s=1, on_deadline="standby") as sandbox:
        printing = "for i in $(seq 20); do echo $i; sleep 0.2; done; sleep 1000"
        sandbox.commands.start(printing)
        begun_s = time.monotonic()
        wait_until(lambda: sandbox.info().state == "standby", 30)
        assert time.monotonic() - begun_s > 4


def test_a_changed_or_truncated_image_is_refused(make_server: MakeServer) -> None:
    """And the sandbox stays paused: its image may be put right again."""
    server = make_server()
    sandbox = server.create(timeout_s=600)
    sandbox.pause()
    (folder,) = [path for path in (server.data / "images").iterdir() if path.name.startswith("pa")]
    pages = max(folder.iterdir(), key=lambda path: path.stat().st_size)
    whole = pages.read_bytes()
    middle = len(whole) // 2
    for damage in (whole[:-1], whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]):
        pages.write_bytes(damage)
        with pytest.raises(Conflict) as caught:
            sandbox.resume()
        assert caught.value.code == "image_damaged"
        assert sandbox.info().state == "paused"
        wait_until(lambda: not server.boxes(), 10)
    pages.write_bytes(whole)
    assert sandbox.resume().state == "running"
    assert sandbox.commands.run("echo whole").stdout == "whole\n"


@pytest.mark.timeout(300)
def test_a_kill_of_the_server_in_the_middle_leaves_one_of_the_two(make_server: MakeServer) -> None:
    """Whatever the moment: a sandbox is whole, as it was before or as it was to be, and nothing else is left.

    One kill hits four sandboxes, each in the middle of something else.
    """
    server = make_server()
    made = {verb: server.create(timeout_s=600) for verb in ("pause", "resume", "snapshot", "rollback")}
    for verb, sandbox in made.items():
        sandbox.files.write("kept", verb)
    snapshots = {verb: sandbox.snapshot() for verb, sandbox in made.items()}
    for delay_ms in (5, 100, 400):
        made["resume"].pause()
        attempts = [
            threading.Thread(target=_quietly, args=(sandbox, verb, snapshots[verb])) for verb, sandbox in made.items()
        ]
        for attempt in attempts:
            attempt.start()
        time.sleep(delay_ms / 1000)
        server.kill()
        for attempt in attempts:
            attempt.join()
        server.start()
        made = {verb: server.connect(sandbox.id) for verb, sandbox in made.items()}
        for verb, sandbox in made.items():
            assert sandbox.info().state in ("running", "paused")
            assert sandbox.resume().state == "running"
            assert sandbox.commands.run("cat kept").stdout == verb
        wait_until(lambda: len(server.boxes()) == len(snapshots), 10, "one box of each")
    assert len(list((server.data / "pool/snapshots").iterdir())) == len(
        server.request("GET", "/v1/snapshots").json()["items"]
    )


def _quietly(sandbox: Sandbox, verb: str, snapshot: SnapshotView) -> None:
    try:
        getattr(sandbox, verb)(*((snapshot,) if verb == "rollback" else ()))
    except AtollError:
        return


def test_a_kill_during_a_pause_ends_it(server: Server) -> None:
    for delay_ms in (1, 30, 80):
        sandbox = server.create(timeout_s=600)
        attempt = threading.Thread(target=_quietly, args=(sandbox, "pause", None))
        attempt.start()
        time.sleep(delay_ms / 1000)
        server.connect(sandbox.id).kill()
        attempt.join()
        assert sandbox.info().state in ("killed", "failed")
        sandbox.close()
    wait_until(lambda: not server.boxes(), 10)
    wait_until(lambda: not list((server.data / "pool/snapshots").iterdir()), 10)
