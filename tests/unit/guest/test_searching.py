"""Lines of a file, one by one."""

from __future__ import annotations

import re
from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from atoll.guest import searching


@given(st.text("ab\n", max_size=30).map(str.encode))
def test_lines_are_what_is_between_newlines(content: bytes) -> None:
    assert list(searching._lines(content)) == content.split(b"\n")


def test_the_first_match_does_not_wait_for_all_lines() -> None:
    content = b"\n" * (32 << 20)
    found = list(islice(searching._matches("x", content, re.compile(b"^")), 3))
    assert [match["line"] for match in found] == [1, 2, 3]
