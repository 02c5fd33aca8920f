"""Keys change with what goes in, and with nothing else."""

from __future__ import annotations

import re

import pytest

from atoll.model.errors import NotFound
from atoll.node.install import definitions


def test_keys_follow_machine_suite_and_parent() -> None:
    key = definitions.template_key("base", "x86_64", "bookworm")
    assert key == definitions.template_key("base", "x86_64", "bookworm")
    others = {
        definitions.template_key("base", "aarch64", "bookworm"),
        definitions.template_key("base", "x86_64", "trixie"),
        definitions.template_key("code", "x86_64", "bookworm"),
        definitions.runtime_key("x86_64", "bookworm"),
        definitions.runsc_key("x86_64"),
    }
    assert len(others | {key}) == 6
    assert definitions.template_key("code", "x86_64", "trixie") not in others


def test_every_python_package_is_pinned_with_a_hash() -> None:
    text = definitions.file_bytes("templates", "code.txt").decode().replace("\\\n", "")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    assert len(lines) > 30
    for line in lines:
        assert re.match(r"[a-z0-9._-]+==\S+ .*--hash=sha256:[0-9a-f]{64}", line), line
    assert "://" not in text


def test_what_is_asked_for_is_what_is_pinned() -> None:
    asked = definitions.file_bytes("templates", "code.in").decode().split()
    pinned = definitions.file_bytes("templates", "code.txt").decode()
    assert [name for name in asked if f"\n{name}==" not in f"\n{pinned}"] == []


def test_the_overlay_is_what_a_sandbox_needs() -> None:
    files = dict(definitions.overlay("base"))
    assert files["/etc/hostname"] == b"sandbox\n"
    assert files["/etc/machine-id"] == b""
    assert b"break-system-packages = true" in files["/etc/pip.conf"]
    assert b"NOPASSWD" in files["/etc/sudoers.d/user"]
    assert not re.search(rb"\$\(|`", files["/etc/profile"]), "the profile must not start programs"


def test_unknown_templates_are_refused() -> None:
    with pytest.raises(NotFound):
        definitions.template("windows")
