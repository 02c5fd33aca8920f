"""Values as E2B's interpreter shows them."""

from __future__ import annotations

import datetime
import io
import math
from pathlib import Path
from typing import Any

import pytest

from atoll.guest.runners import e2b
from atoll.guest.runners.tables import CELLS_MAX


def test_lists_and_dicts_have_a_form_in_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("E2B_SANDBOX", "true")
    day = datetime.date(2026, 1, 2)
    assert e2b.shown({"a": [1, 2.5, None, True], 3: ("x", day)}) == {
        "a": [1, 2.5, None, True],
        "3": ["x", "2026-01-02"],
    }
    assert e2b.shown([math.nan]) == [None]
    for other in ([object()], {("a", "b"): 1}, [{1, 2}], [b"x"]):
        assert e2b.shown(other) is None


def test_what_is_too_large_or_holds_itself_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("E2B_SANDBOX", "true")
    loop: list[Any] = []
    loop.append(loop)
    for large in ([0] * (CELLS_MAX + 1), ["x" * 16 * CELLS_MAX], loop):
        assert e2b.shown(large) is None


def test_elsewhere_nothing_is_different(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("E2B_SANDBOX", raising=False)
    assert e2b.shown([1]) is None


def test_a_picture_is_saved_and_stays_what_it_was(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("E2B_SANDBOX", raising=False)

    class Image:
        def save(self, fp: Any, format: str | None = None) -> None:
            if isinstance(fp, str):
                Path(fp).write_text(str(format))
            else:
                fp.write(str(format).encode())

    e2b.show_saved(Image)
    Image().save(str(tmp_path / "a"), "PNG")
    assert (tmp_path / "a").read_bytes() == b"PNG"
    memory = io.BytesIO()
    Image().save(memory, format="JPEG")
    assert memory.getvalue() == b"JPEG"
