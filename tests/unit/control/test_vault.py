"""Sealed values open under their own label and key only; a key can be replaced."""

from __future__ import annotations

import pytest

from atoll.control.vault import Vault, key_new
from atoll.model.errors import Internal, InvalidArgument


def test_a_sealed_value_opens_again_and_only_in_its_place() -> None:
    vault = Vault(key_new())
    sealed = vault.seal("s3cr3t", "me\0KEY")
    assert "s3cr3t" not in sealed
    assert sealed != vault.seal("s3cr3t", "me\0KEY")
    assert vault.open(sealed, "me\0KEY").reveal() == "s3cr3t"
    with pytest.raises(Internal):
        vault.open(sealed, "other\0KEY")


def test_a_new_key_on_top_of_the_old_one() -> None:
    old, new = key_new(), key_new()
    sealed = Vault(old).seal("s3cr3t", "x")
    both = Vault(new + old)
    assert not both.is_current(sealed)
    assert both.open(sealed, "x").reveal() == "s3cr3t"
    assert both.is_current(both.seal("s3cr3t", "x"))
    with pytest.raises(Internal) as caught:
        Vault(new).open(sealed, "x")
    assert caught.value.code == "secrets_key_missing"


@pytest.mark.parametrize("text", [b"", b"short", b"!!!!"])
def test_what_is_not_a_key(text: bytes) -> None:
    with pytest.raises(InvalidArgument):
        Vault(text)
