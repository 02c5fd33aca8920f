"""A sandbox's specification refuses what cannot be granted, before anything happens."""

from __future__ import annotations

import pytest

from atoll.model import limits
from atoll.model.errors import InvalidArgument
from atoll.model.sandbox import SandboxSpec


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        (SandboxSpec(timeout_s=-5), "invalid_timeout"),
        (SandboxSpec(timeout_s=0), "invalid_timeout"),
        (SandboxSpec(timeout_s=float("nan")), "invalid_timeout"),
        (SandboxSpec(timeout_s=1e12), "invalid_timeout"),
        (SandboxSpec(name="Not Good"), "invalid_name"),
        (SandboxSpec(name="x" * 64), "invalid_name"),
        (SandboxSpec(name=""), "invalid_name"),
        (SandboxSpec(name="sb" + "0" * 36), "invalid_name"),  # by it only the sandbox with this id is found
        (SandboxSpec(external_id="sb" + "0" * 36), "invalid_id"),
        (SandboxSpec(template="../etc"), "invalid_template"),
        (SandboxSpec(env={"1A": "x"}), "invalid_env"),
        (SandboxSpec(env={"A": "x\0y"}), "invalid_env"),
        (SandboxSpec(env={"A": "x" * limits.ENV_BYTES_MAX}), "invalid_env"),
        (SandboxSpec(metadata={"": "x"}), "invalid_metadata"),
        (SandboxSpec(metadata={"k": "x" * 5000}), "invalid_metadata"),
        (SandboxSpec(metadata={str(n): "" for n in range(100)}), "invalid_metadata"),
    ],
)
def test_bad_specifications(spec: SandboxSpec, code: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        spec.checked()
    assert caught.value.code == code


def test_a_good_one_passes() -> None:
    spec = SandboxSpec(name="a-1", env={"A_b": "é\n"}, metadata={"run": "7"}, timeout_s=1)
    assert spec.checked() is spec
