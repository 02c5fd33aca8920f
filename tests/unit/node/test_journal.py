"""The journal gives back what was written, whole or not at all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from atoll.model.resources import Resources
from atoll.node.images import Boot
from atoll.node.journal import Entry, Journal
from atoll.node.runtime.base import BoxRecord

ENTRY = Entry("bx1", "sb1", "ab", "code", Resources(cpu=0.5), "host", "secret-token", Boot("hash", "/app", "/runtime"))


def test_entries_come_back_as_they_were(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    journal.write(ENTRY)
    assert Journal(tmp_path / "journal").read() == [ENTRY]
    living = ENTRY.lives_as(BoxRecord(42, 99))
    journal.write(living)
    assert journal.read() == [living]
    journal.remove("bx1")
    journal.remove("bx1")
    assert journal.read() == []


def test_a_half_written_record_is_as_if_it_had_not_been(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.write(ENTRY)
    (tmp_path / "bx2.tmp").write_text('{"box_id": "bx2", "sand')
    assert journal.read() == [ENTRY]
    assert not (tmp_path / "bx2.tmp").exists()


def test_an_unreadable_record_is_set_aside(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for number, text in enumerate(["", "[]", "{}", '{"resources": 3, "live": null}', "\xff"]):
        (tmp_path / f"bx{number}.json").write_text(text)
    assert journal.read() == []
    assert len(list(tmp_path.glob("*.unreadable"))) == 5


def test_the_token_is_for_the_owner_only(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.write(ENTRY)
    assert (tmp_path / "bx1.json").stat().st_mode & 0o077 == 0
    assert "secret-token" not in repr(ENTRY)


def test_who_takes_over_from_another_comes_after_it(tmp_path: Path) -> None:
    """Also if its box is the older one, as it is when it waited in the pool."""
    journal = Journal(tmp_path)
    old = replace(ENTRY, box_id="bx0", replaces="bx1")
    for entry in (old, ENTRY):
        journal.write(entry)
    assert journal.read() == [ENTRY, old]
