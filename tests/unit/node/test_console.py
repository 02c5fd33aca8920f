"""What the first program of a box writes is kept within a bound."""

from __future__ import annotations

import os

import pytest

from atoll.model import limits
from atoll.node.console import Console


def test_it_is_read_whoever_moved_the_offset_and_never_grows() -> None:
    console = Console()
    try:
        assert console.text() == ""
        os.pwrite(console.fd, b"last words\n", 0)  # as a runtime does that keeps an offset of its own
        assert console.text() == "last words"
        with pytest.raises(OSError, match="not permitted"):
            os.pwrite(console.fd, b"x", limits.CONSOLE_BYTES_MAX)
    finally:
        console.close()
    console.close()
    assert console.text() == ""
