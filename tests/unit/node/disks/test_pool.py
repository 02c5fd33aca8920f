"""The pure parts of the pool: its size, its names, what its errors mean."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.model import limits
from atoll.model.errors import AtollError, Conflict, Internal, InvalidArgument, NotFound, Unavailable
from atoll.node.disks import pool


@given(st.integers(min_value=0, max_value=2**60))
def test_an_image_leaves_the_host_its_share(free_bytes: int) -> None:
    size = pool.image_size_bytes(free_bytes)
    assert 0 <= size <= min(free_bytes, limits.POOL_BYTES_MAX)
    assert size % limits.MIB == 0


@pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "a/b", "../x", "a\0b", "a b", "-x", "x" * 129, "a\n"])
def test_names_that_lead_elsewhere_are_refused(name: str) -> None:
    disks = pool.Pool(Path("/nonexistent"), None)
    with pytest.raises(InvalidArgument):
        disks.disk_path(name)
    with pytest.raises(InvalidArgument):
        disks.template_path(name)


@pytest.mark.parametrize(
    ("number", "kind", "code"),
    [
        (errno.ENOSPC, Unavailable, "disk_pool_full"),
        (errno.EDQUOT, Unavailable, "disk_pool_full"),
        (errno.EEXIST, Conflict, "disk_exists"),
        (errno.ENOENT, NotFound, "no_such_disk"),
        (errno.EIO, Internal, "disk_failed"),
    ],
)
def test_system_errors_get_their_meaning(number: int, kind: type[AtollError], code: str) -> None:
    with pytest.raises(kind) as caught, pool.meaning("the disk of s"):
        raise OSError(number, "what the kernel says")
    assert caught.value.code == code


def test_a_template_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotFound) as caught:
        pool.Pool(tmp_path, None).template_path("nothing")
    assert caught.value.code == "no_such_template"
