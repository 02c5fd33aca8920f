"""Where a link of an archive leads can be told from its text alone."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.guest.failure import Refused
from atoll.guest.unpacking import Target, check_link, entry_parts

parts = st.lists(st.sampled_from(["a", "b", "c", "..", ".", ""]), min_size=1, max_size=5).map("/".join)


@pytest.mark.parametrize("name", ["/a", "../a", "a/../../b", "a/..", "a\0b"])
def test_names_that_lead_out(name: str) -> None:
    with pytest.raises(Refused):
        entry_parts(name)


@pytest.mark.parametrize(("name", "target"), [("l", "a/b"), ("d/l", "../a"), ("d/e/l", "../../a/b"), ("l", ".")])
def test_links_that_stay_inside(name: str, target: str) -> None:
    check_link(entry_parts(name), target)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(parts, parts), max_size=6))
def test_no_set_of_links_leads_out(links: list[tuple[str, str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve() / "root"
        root.mkdir()
        target = Target(str(root), 1000)
        try:
            for name, text in links:
                with suppress(Refused, OSError, IndexError):
                    target.put_link(entry_parts(name), text)
        finally:
            os.close(target.root_fd)
        for found, folders, files in os.walk(root):
            for entry in (*folders, *files):
                with suppress(OSError, RuntimeError):  # a link to itself leads nowhere
                    assert Path(found, entry).resolve(strict=True).is_relative_to(root)
