"""Where things are."""

from __future__ import annotations

from pathlib import Path

import pytest

from atoll.model.errors import Unavailable
from atoll.node.install.layout import Layout, loader_name


def test_the_environment_decides() -> None:
    layout = Layout.from_environment({"ATOLL_CACHE": "/c", "ATOLL_DATA": "/d", "ATOLL_RUNSC": "/r"})
    assert (layout.cache, layout.data, layout.runsc) == (Path("/c"), Path("/d"), Path("/r"))
    layout = Layout.from_environment({"ATOLL_DATA": ""})
    assert (layout.cache, layout.data, layout.runsc) == (Path("/var/cache/atoll"), Path("/var/lib/atoll"), None)


def test_before_set_up_the_paths_say_what_to_do(tmp_path: Path) -> None:
    layout = Layout(cache=tmp_path, data=tmp_path)
    for ask in (layout.runsc_path, layout.runtime_dir):
        with pytest.raises(Unavailable) as caught:
            ask()
        assert caught.value.code == "not_set_up"
        assert "setup" in caught.value.hint


def test_loaders() -> None:
    assert loader_name("x86_64") == "ld-linux-x86-64.so.2"
    assert loader_name("aarch64") == "ld-linux-aarch64.so.1"
    with pytest.raises(Unavailable):
        loader_name("riscv64")
