"""Whom programs trust, in files as they lie in a sandbox; that programs follow them is seen in real ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from atoll.guest import javastore, trust
from tests.unit.guest.test_javastore import EMPTY

OWN = "-----BEGIN CERTIFICATE-----\nb3du\n-----END CERTIFICATE-----\n"
ONE = "-----BEGIN CERTIFICATE-----\nb25l\n-----END CERTIFICATE-----\n"
TWO = "-----BEGIN CERTIFICATE-----\ndHdv\n-----END CERTIFICATE-----\n"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An image that trusts one authority of its own."""
    for name in ("BUNDLE", "CERTIFICATE", "_JAVA_STORE"):
        path = tmp_path / name.lower()
        monkeypatch.setattr(trust, name, str(path))
    (tmp_path / "bundle").write_text(OWN)
    (tmp_path / "_java_store").write_bytes(javastore.with_certificate(EMPTY, "own", b"own", 1))
    return tmp_path


def java(root: Path) -> list[str]:
    return [alias for alias, _ in javastore._entries((root / "_java_store").read_bytes()[:-20])]


def test_one_is_trusted_then_another_then_none(root: Path) -> None:
    image = (root / "_java_store").read_bytes()
    assert trust.install(ONE) == []
    assert ONE in (root / "bundle").read_text()
    assert trust.install(TWO) == []
    assert (root / "bundle").read_text() == OWN + trust._BEGIN + TWO
    assert (root / "certificate").read_text() == TWO
    assert java(root) == ["own", "atoll"]
    assert trust.forget() == []
    assert (root / "bundle").read_text() == OWN
    assert (root / "_java_store").read_bytes() == image
    assert not (root / "certificate").exists()
    assert trust.forget() == []


def test_what_the_images_own_tools_made_of_it_goes_too(root: Path) -> None:
    """`update-ca-certificates` makes the bundle anew, without our mark, and gives Java's store a second name for it."""
    trust.install(ONE)
    (root / "bundle").write_text(OWN + ONE + TWO)
    store = (root / "_java_store").read_bytes()
    (root / "_java_store").write_bytes(javastore.with_certificate(store, "debian:atoll.pem", b"one", 1))
    assert trust.forget() == []
    assert (root / "bundle").read_text() == OWN + TWO
    assert java(root) == ["own"]


def test_what_was_added_behind_it_stays(root: Path) -> None:
    trust.install(ONE)
    with (root / "bundle").open("a") as bundle:
        bundle.write(TWO)
    trust.forget()
    assert (root / "bundle").read_text() == OWN + TWO


def test_a_certificate_that_was_replaced_by_something_else_hinders_nothing(root: Path) -> None:
    trust.install(ONE)
    (root / "certificate").write_bytes(b"\xff\xfe")
    assert trust.forget() == []
    assert (root / "bundle").read_text() == OWN
    assert java(root) == ["own"]


def test_what_cannot_be_changed_is_said(root: Path) -> None:
    trust.install(ONE)
    (root / "certificate").unlink()
    (root / "certificate").mkdir()
    assert trust.forget() == ["certificate: Is a directory"]
    assert (root / "bundle").read_text() == OWN
