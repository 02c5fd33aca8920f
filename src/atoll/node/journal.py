"""The journal: one small file per box, written before the first thing of that box exists on the host.

It is what a node knows after it was killed. A record says which names the box's things have (they all follow from the
box's id and its network slot) and, once it lives, which process it is. A file is replaced by rename, so a reader sees
the old record or the new one. There is no fsync: a crash of the whole host ends every box anyway, and what then lies
around is found by name.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from atoll.model.resources import Resources
from atoll.model.volume import VolumeMount
from atoll.node.disks.pool import meaning
from atoll.node.images import Boot
from atoll.node.runtime.base import BoxRecord
from atoll.wire import codec


@dataclass(frozen=True, slots=True)
class Entry:
    """What must be known about a box to use it again, or to remove it."""

    box_id: str
    sandbox_id: str
    """Empty for a box that waits for its owner."""
    slot: str
    template: str
    resources: Resources
    hostname: str
    token: str
    boot: Boot
    live: BoxRecord | None = None
    cpu_base_s: float = 0.0
    """What its group had used when it became somebody's: the time before is not its owner's to pay."""
    env: Mapping[str, str] = field(default_factory=dict)
    """What its owner gave it; a fresh boot of its disk needs it again."""
    frozen: bool = False
    """It is in standby."""
    held: bool = False
    """It stands still for an image. Who finds it so after a kill lets it go on."""
    replaces: str = ""
    """The box of the same sandbox that this one takes over from; as long as that one lives, this one is not it."""
    untold: str = ""
    """The token that its guest still knows: it is somebody's, but has not been told so."""
    volumes: tuple[VolumeMount, ...] = ()

    def lives_as(self, record: BoxRecord) -> Entry:
        return replace(self, live=record)

    def __repr__(self) -> str:
        return f"Entry({self.box_id}, {self.sandbox_id}, slot {self.slot})"  # no token in a log


class Journal:
    """The records of one server's boxes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def write(self, entry: Entry) -> None:
        """Where there is no room the record stays as it was, and that is told."""
        path = self._path(entry.box_id)
        fresh = path.with_suffix(".tmp")
        data = codec.encode(entry)
        with meaning("the journal"):
            try:
                fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
                with open(fd, "wb") as file:  # buffered, because a bare write may take a part and say nothing
                    file.write(data)
                fresh.replace(path)
            except BaseException:
                fresh.unlink(missing_ok=True)
                raise

    def remove(self, box_id: str) -> None:
        self._path(box_id).unlink(missing_ok=True)

    def read(self) -> list[Entry]:
        """All records. One that cannot be read is set aside: what it stood for is found by name and removed.

        Who takes over from another comes after it, so that it is known by then whether that one lives. Their ids do not
        tell: a box that waited may be older than the one that it replaces.
        """
        entries = []
        for path in sorted(self._folder.glob("*.json")):
            try:
                entries.append(_entry(json.loads(path.read_text())))
            except (ValueError, KeyError, TypeError):
                path.rename(path.with_suffix(".unreadable"))
        for half_written in self._folder.glob("*.tmp"):
            half_written.unlink()
        return sorted(entries, key=lambda entry: bool(entry.replaces))

    def _path(self, box_id: str) -> Path:
        return self._folder / f"{box_id}.json"


def _entry(raw: Mapping[str, object]) -> Entry:
    fields = dict(raw)
    resources, boot, live = fields.pop("resources"), fields.pop("boot"), fields.pop("live")
    volumes = tuple(VolumeMount(**mount) for mount in fields.pop("volumes", ()))  # type: ignore[attr-defined]
    if not isinstance(resources, dict) or not isinstance(boot, dict) or not (live is None or isinstance(live, dict)):
        raise TypeError("not a journal record")
    record = BoxRecord(**live) if live is not None else None
    return Entry(**fields, resources=Resources(**resources), boot=Boot(**boot), live=record, volumes=volumes)  # type: ignore[arg-type]
