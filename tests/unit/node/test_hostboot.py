"""A restart of the machine is told from one of the server."""

from __future__ import annotations

from pathlib import Path

from atoll.node import hostboot


def test_only_another_boot_is_a_restart_of_the_machine(tmp_path: Path) -> None:
    record, boot_id = tmp_path / "boot", tmp_path / "boot_id"
    boot_id.write_text("one\n")
    assert [hostboot.changed(record, boot_id) for _ in range(2)] == [False, False]
    boot_id.write_text("two\n")
    assert [hostboot.changed(record, boot_id) for _ in range(2)] == [True, False]
