"""Resources outside their bounds are refused with a code."""

from __future__ import annotations

import pytest

from atoll.model import limits
from atoll.model.errors import InvalidArgument
from atoll.model.resources import Resources


@pytest.mark.parametrize(
    "resources",
    [
        Resources(cpu=0),
        Resources(cpu=-1),
        Resources(cpu=float("nan")),
        Resources(cpu=float("inf")),
        Resources(memory_bytes=-1),
        Resources(memory_bytes=2**70),
        Resources(disk_bytes=0),
        Resources(pids=1),
        Resources(pids=limits.PIDS_MAX + 1),
    ],
)
def test_out_of_bounds_is_refused(resources: Resources) -> None:
    with pytest.raises(InvalidArgument) as caught:
        resources.checked()
    assert caught.value.code == "invalid_resources"


def test_the_defaults_are_within_bounds() -> None:
    assert Resources().checked() == Resources()
