"""Where a volume may be mounted."""

from __future__ import annotations

import pytest

from atoll.model import limits
from atoll.model.errors import InvalidArgument
from atoll.model.volume import VolumeMount, check_mounts, check_path


@pytest.mark.parametrize("path", ["/data", "/home/user/data", "/mnt/a b", "/etcetera", "/opt"])
def test_places_that_are_free(path: str) -> None:
    check_path(path)


@pytest.mark.parametrize(
    "path", ["", "data", "/", "/proc", "/proc/x", "/.atoll/app", "/a/../etc", "/a/", "//a", "/a\0"]
)
def test_places_that_are_not(path: str) -> None:
    with pytest.raises(InvalidArgument):
        check_path(path)


def test_not_too_many_and_none_twice() -> None:
    many = [VolumeMount(f"v{n}", f"/v{n}", read_only=n % 2 == 0) for n in range(2 * limits.VOLUME_SLOTS)]
    check_mounts(many)
    for bad in (
        [*many, VolumeMount("x", "/x")],
        [VolumeMount("v", "/a"), VolumeMount("v", "/b")],
        [VolumeMount("v", "/a"), VolumeMount("w", "/a")],
    ):
        with pytest.raises(InvalidArgument):
            check_mounts(bad)
