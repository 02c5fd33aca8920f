"""The closure of libraries is read from ldd as it prints it."""

from __future__ import annotations

from pathlib import Path

import pytest

from atoll.model.errors import Internal
from atoll.node.install import runtime

LDD = """\
/usr/bin/python3.11:
\tlinux-vdso.so.1 (0x00007ffd8f5f2000)
\tlibm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x00007f2b1c5c1000)
\t/lib64/ld-linux-x86-64.so.2 (0x00007f2b1d2a7000)
/usr/lib/python3.11/lib-dynload/_x.so:
\tlibm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x00007f2b1c5c1000)
\tstatically linked
"""


def test_libraries() -> None:
    assert runtime.libraries(LDD) == {"/lib/x86_64-linux-gnu/libm.so.6", "/lib64/ld-linux-x86-64.so.2"}


def test_a_missing_library_is_named() -> None:
    with pytest.raises(Internal, match=r"libgone\.so\.1"):
        runtime.libraries(LDD + "\tlibgone.so.1 => not found\n")


def test_the_newest_python_is_taken() -> None:
    assert runtime.python_version(["python3", "python3.9", "python3.11", "python3.11-config"]) == "python3.11"
    with pytest.raises(Internal):
        runtime.python_version(["perl"])


def test_links_are_followed_inside_the_root(tmp_path: Path) -> None:
    (tmp_path / "usr/lib").mkdir(parents=True)
    (tmp_path / "usr/lib/libx.so.1.2").write_text("x")
    (tmp_path / "lib").symlink_to("usr/lib")
    (tmp_path / "usr/lib/libx.so.1").symlink_to("libx.so.1.2")
    (tmp_path / "usr/lib/abs.so").symlink_to("/lib/libx.so.1.2")
    (tmp_path / "usr/lib/loop.so").symlink_to("loop.so")
    for name in ("/lib/libx.so.1", "/lib/abs.so"):
        assert runtime._resolved(tmp_path, name).read_text() == "x"
    with pytest.raises(Internal):
        runtime._resolved(tmp_path, "/lib/loop.so")


def test_the_words_that_start_it() -> None:
    words = runtime.argv(Path("/.atoll/runtime"), "aarch64")
    assert words[0] == "/.atoll/runtime/lib/ld-linux-aarch64.so.1"
    assert words[-3:] == ["/.atoll/runtime/bin/python3", "-I", "-S"]
