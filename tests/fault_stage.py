"""Operations on state that a test lets fail at a step of its choice, and what must hold afterwards, whatever it was.

Each case is one operation with one thing that it makes or changes. Afterwards that is there whole or not at all, what
it was made of is as it was, and what lies on the host is what the database says.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atoll import Sandbox, Snapshot, Volume
from atoll.model import ids
from atoll.model.errors import AtollError
from atoll.node import warmimages
from atoll.testing.faults import FaultyServer, Mode
from tests.waiting import wait_until

NEVER = 1_000_000
FILE_BYTES = 3_000_000
SETTLED_S = 30
LOOP = "i=0; while true; do i=$((i+1)); echo $i > /tmp/next; mv /tmp/next /tmp/count; sleep 0.02; done"


class Stage:
    """A server with a sandbox that works, a snapshot of it, its file, and a volume with a snapshot.

    With `pooled`, boxes wait on it for something to live.
    """

    def __init__(self, server: FaultyServer, folder: Path, *, pooled: bool = False) -> None:
        self.server = server
        self.pooled = pooled
        self.wait_pool()
        self.file = folder / "kept.atoll"
        self.out = folder / "out.atoll"
        sandbox = server.create("busybox", timeout_s=3600)
        self.sandbox_id = sandbox.id
        sandbox.files.write("/root/big", "b" * FILE_BYTES, user="root")
        self.snapshot = sandbox.snapshot("kept", memory=False).id
        self.moment = sandbox.snapshot("moment").id
        sandbox.files.write("/root/big", "now", user="root")
        sandbox.commands.start(LOOP, user="root")
        wait_until(lambda: sandbox.files.exists("/tmp/count", user="root"), SETTLED_S)
        sandbox.close()
        Snapshot.export(self.snapshot, self.file, memory=False, **self.own)
        Volume.create("data", **self.own)
        self.write("then")
        self.volume_snapshot = Volume.snapshot("data", "then", **self.own).id
        self.write("now")

    @property
    def own(self) -> dict[str, Any]:
        return {"url": self.server.url, "api_key": self.server.key}

    @contextlib.contextmanager
    def sandbox(self) -> Iterator[Sandbox]:
        with contextlib.closing(self.server.connect(self.sandbox_id)) as sandbox:
            yield sandbox

    def write(self, note: str) -> None:
        with Volume.files("data", **self.own) as files:
            files.write("/note", note)

    def note(self, volume: str = "data") -> str:
        with Volume.files(volume, **self.own) as files:
            return files.read("/note")

    def names(self) -> set[str]:
        """All that is listed under a name."""
        found = {f"snapshot {one.name}" for one in Snapshot.list(**self.own)}
        found |= {f"volume {one.name}" for one in Volume.list(**self.own)}
        return found | {f"snapshot of data {one.name}" for one in Volume.snapshots("data", **self.own)}

    def wait_pool(self) -> None:
        """Until as many wait as should: nothing is made in advance any more."""

        def full() -> bool:
            count = self.server.status()["warm"].get("busybox", {"live": 0, "shells": 0})
            return bool(count["live"] and count["shells"])

        if self.pooled:
            wait_until(full, SETTLED_S, "the pool is full")

    def waiting(self) -> set[str]:
        """The boxes that are nobody's."""
        return {entry["box_id"] for entry in self.server.journal() if not entry["sandbox_id"]}

    def sandboxes(self) -> set[str]:
        return {row["id"] for row in self.server.rows() if row["state"] not in ("killed", "failed")}


@dataclass(frozen=True)
class Case:
    name: str
    act: Callable[[Stage], None]
    """The operation; asks for the same each time."""
    made: Callable[[Stage], bool]
    """Whether it has come about; looks into it, too."""
    undo: Callable[[Stage], None]
    """As before, after it has come about."""
    ready: Callable[[Stage], None] = lambda stage: None
    """What must be so before it."""


def _export(stage: Stage) -> None:
    Snapshot.export(stage.snapshot, stage.out, memory=False, **stage.own)


def _import(stage: Stage) -> None:
    Snapshot.import_(stage.file, name="brought", memory=False, **stage.own)


def _is_imported(stage: Stage) -> bool:
    if "snapshot brought" not in stage.names():
        return False
    with stage.server.create("brought", timeout_s=600) as sandbox:
        assert len(sandbox.files.read("/root/big", user="root")) == FILE_BYTES
    return True


def _is_cloned(stage: Stage) -> bool:
    if "volume copy" not in stage.names():
        return False
    assert stage.note("copy") == "now"
    return True


def _is_kept(stage: Stage) -> bool:
    if "snapshot of data second" not in stage.names():
        return False
    Volume.create("look", source="data", snapshot="second", **stage.own)
    assert stage.note("look") == "now"
    Volume.delete("look", **stage.own)
    return True


def _rollback(stage: Stage) -> None:
    with stage.sandbox() as sandbox:
        sandbox.rollback(stage.moment)


def _big(stage: Stage) -> str:
    with stage.sandbox() as sandbox:
        return sandbox.files.read("/root/big", user="root")


def _is_back(stage: Stage) -> bool:
    """Either content is whole; nothing in between."""
    found = _big(stage)
    assert found in ("now", "b" * FILE_BYTES), found[:20]
    return found != "now"


def _work_again(stage: Stage) -> None:
    with stage.sandbox() as sandbox:
        sandbox.files.write("/root/big", "now", user="root")
        sandbox.commands.start(LOOP, user="root")


def _forget_file(stage: Stage) -> None:
    with stage.sandbox() as sandbox:
        sandbox.files.write("/root/big", "now", user="root")


def _restore_file(stage: Stage) -> None:
    with stage.sandbox() as sandbox:
        sandbox.restore_file(stage.snapshot, "/root/big")


def _pause(stage: Stage) -> None:
    with stage.sandbox() as sandbox:
        sandbox.pause()


def _is_paused(stage: Stage) -> bool:
    with stage.sandbox() as sandbox:
        return sandbox.info().state == "paused"


def _resume(stage: Stage) -> None:
    with stage.sandbox() as sandbox:
        sandbox.resume(timeout_s=3600)


def _is_awake(stage: Stage) -> bool:
    """And itself: what it had written, and what it was doing."""
    if _is_paused(stage):
        return False
    with stage.sandbox() as sandbox:
        assert sandbox.files.read("/root/big", user="root") == "now"
        first = int(sandbox.files.read("/tmp/count", user="root") or 0)
        wait_until(lambda: int(sandbox.files.read("/tmp/count", user="root") or 0) > first, SETTLED_S, "it goes on")
    return True


def _snapshot(stage: Stage) -> None:
    with stage.sandbox() as sandbox:
        sandbox.snapshot("third")


def _fork(stage: Stage) -> None:
    with stage.sandbox() as sandbox:
        for copy in sandbox.fork(2):
            copy.close()


def _has_forks(stage: Stage) -> bool:
    forks = stage.sandboxes() - {stage.sandbox_id}
    for one in forks:
        with contextlib.closing(stage.server.connect(one)) as copy:
            assert copy.files.read("/root/big", user="root") == "now"
    return len(forks) == 2


def _end_forks(stage: Stage) -> None:
    for one in stage.sandboxes() - {stage.sandbox_id}:
        with contextlib.closing(stage.server.connect(one)) as copy:
            copy.kill()


CASES = [
    Case("export", _export, lambda stage: stage.out.exists(), lambda stage: stage.out.unlink()),
    Case("import", _import, _is_imported, lambda stage: Snapshot.delete("brought", **stage.own)),
    Case(
        "volume snapshot",
        lambda stage: void(Volume.snapshot("data", "second", **stage.own)),
        _is_kept,
        lambda stage: Volume.delete_snapshot("data", "second", **stage.own),
    ),
    Case(
        "volume clone",
        lambda stage: void(Volume.create("copy", source="data", **stage.own)),
        _is_cloned,
        lambda stage: Volume.delete("copy", **stage.own),
    ),
    Case(
        "volume rollback",
        lambda stage: void(Volume.rollback("data", "then", **stage.own)),
        lambda stage: stage.note() == "then",
        lambda stage: stage.write("now"),
    ),
    Case("rollback", _rollback, _is_back, _work_again),
    Case("file restore", _restore_file, _is_back, _forget_file),
    Case("pause", _pause, _is_paused, _resume),
    Case("resume", _resume, _is_awake, lambda stage: None, ready=_pause),
    Case(
        "snapshot",
        _snapshot,
        lambda stage: "snapshot third" in stage.names(),
        lambda stage: Snapshot.delete("third", **stage.own),
    ),
    Case("fork", _fork, _has_forks, _end_forks),
    Case(
        "snapshot delete",
        lambda stage: Snapshot.delete("third", **stage.own),
        lambda stage: "snapshot third" not in stage.names(),
        lambda stage: None,
        ready=_snapshot,
    ),
    Case(
        "volume delete",
        lambda stage: Volume.delete("copy", **stage.own),
        lambda stage: "volume copy" not in stage.names(),
        lambda stage: None,
        ready=lambda stage: void(Volume.create("copy", source="data", **stage.own)),
    ),
    Case(
        "volume write",
        lambda stage: stage.write("then"),
        lambda stage: stage.note() == "then",
        lambda stage: stage.write("now"),
    ),
]


MOVING_IN = [case for case in CASES if case.name in ("resume", "rollback", "fork")]
"""What may use a box that waited."""


def void(_value: object) -> None:
    """A case's operation answers nothing."""


def steps_of(stage: Stage, case: Case, mode: Mode) -> int:
    """How many steps the operation has when all goes well."""
    case.ready(stage)
    stage.wait_pool()
    waited = stage.waiting()
    stage.server.plan.set(mode, NEVER)
    case.act(stage)
    steps = stage.server.plan.set("off")
    assert case.made(stage)
    moved = {entry["box_id"] for entry in stage.server.journal() if entry["sandbox_id"]} & waited
    assert bool(moved) == stage.pooled, "whether a box that waited is used"
    case.undo(stage)
    return steps


def attempt(stage: Stage, case: Case, mode: Mode, at: int) -> str:
    """Let it fail at a step, look at everything, and let it succeed. Answers the code of the error, or ""."""
    case.ready(stage)
    stage.wait_pool()
    stage.server.plan.set(mode, at)
    code = ""
    try:
        case.act(stage)
    except AtollError as error:
        code = error.code
    finally:
        seen = stage.server.plan.set("off")
    if mode == "kill" and seen >= at:
        stage.server.wait_dead()
        stage.server.start()
    assert code not in ("internal", "disk_failed"), (case.name, mode, at, stage.server.log()[-3000:])
    wait_until(lambda: not strays(stage), SETTLED_S, lambda: f"{case.name}, {mode} at {at}, {code}: {strays(stage)}")
    made = case.made(stage)
    # A record that could not be written is caught up with later, so what it is about may have come about.
    certain = mode != "kill" and code != "database_unavailable"
    assert not certain or made is not bool(code), f"{case.name}, {mode} at {at}: {code or 'no error'}, made: {made}"
    untouched(stage)
    if not made:
        _end_forks(stage)
        case.act(stage)
        assert case.made(stage), f"{case.name}, {mode} at {at}: not when it is tried again"
    case.undo(stage)
    return code


def untouched(stage: Stage) -> None:
    """What the operations are done to, and what they are done from."""
    assert {"snapshot kept", "snapshot moment", "volume data", "snapshot of data then"} <= stage.names()
    assert stage.note() in ("then", "now")


def strays(stage: Stage) -> list[str]:
    """Where host and database differ."""
    server = stage.server
    known, half = _on_record(server.data / "atoll.db")
    paused = {row["id"] for row in server.rows() if row["state"] == "paused"}
    running = {row["id"] for row in server.rows() if row["state"] in ("running", "standby")}
    found = list(half)
    for folder in ("images", "pool/snapshots", "pool/volumes"):
        there = {path.name for path in (server.data / folder).iterdir() if path.name != ".empty"}
        there = {name for name in there if not (stage.pooled and name.startswith(warmimages.PREFIX))}
        asleep = {one for one in there if ids.is_id(ids.PAUSE, one)}
        found += [f"{folder}/{one}" for one in (there - asleep) ^ known[folder]]
        if folder != "pool/volumes":
            sleepers = {_sleeper(server.data / "images" / one) for one in asleep}
            found += [f"{folder} of the paused: {sleepers}, not {paused}"] * (sleepers != paused)
    entries = stage.server.journal()
    journal = Counter(entry["sandbox_id"] for entry in entries if entry["sandbox_id"] or not stage.pooled)
    found += [f"journal: {one}" for one in journal if journal[one] > 1 or one not in running]
    found += [f"not in the journal: {one}" for one in running if one not in journal]
    recorded = {entry["box_id"] for entry in entries}
    found += [f"boxes: {recorded ^ server.boxes()}"] * (recorded != server.boxes())
    return found


def _on_record(path: Path) -> tuple[dict[str, set[str]], list[str]]:
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        snapshots = dict(database.execute("select id, state from snapshots"))
        volumes = {one for (one,) in database.execute("select id from volumes union select id from volume_snapshots")}
        states = list(database.execute("select id, state from sandboxes"))
    half = [f"{one} is {state}" for one, state in snapshots.items() if state != "ready"]
    half += [f"{one} is {state}" for one, state in states if state in ("creating", "pausing", "resuming", "ending")]
    return {"images": set(snapshots), "pool/snapshots": set(snapshots), "pool/volumes": volumes}, half


def _sleeper(image: Path) -> str:
    try:
        return str(json.loads((image / "manifest.json").read_text())["sandbox_id"])
    except FileNotFoundError:
        return f"nobody ({image.name})"
