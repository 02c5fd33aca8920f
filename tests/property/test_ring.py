"""A ring agrees with the whole output: what it gives is what was written there, and what it lost it says."""

from __future__ import annotations

from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from atoll.guest.ring import Budget, Follower, Ring
from atoll.model import limits


@given(
    st.lists(st.binary(max_size=60), max_size=40),
    st.integers(1, 100),
    st.lists(st.tuples(st.integers(0, 2500), st.integers(1, 200))),
)
def test_reads_are_slices_of_all_that_was_written(
    writes: list[bytes], capacity: int, reads: list[tuple[int, int]]
) -> None:
    with mock.patch.multiple(limits, RING_BYTES_MAX=capacity, RING_BYTES_MIN=1):
        ring = Ring(Budget())
        whole = b""
        for data in writes:
            ring.append(data)
            whole += data
            assert ring.end == len(whole)
            assert ring.end - ring.start == min(capacity, len(whole))
        for offset, count in reads:
            begin, data = ring.read(offset, count)
            assert begin == max(offset, ring.start)
            assert data == whole[begin : begin + count]


@given(st.lists(st.tuples(st.binary(min_size=1, max_size=50), st.integers(0, 80)), max_size=40), st.integers(1, 60))
def test_a_writer_that_heeds_the_room_loses_nothing_of_its_reader(
    steps: list[tuple[bytes, int]], capacity: int
) -> None:
    with mock.patch.multiple(limits, RING_BYTES_MAX=capacity, RING_BYTES_MIN=1):
        ring = Ring(Budget())
        follower = Follower(0, lambda: None)
        ring.follow(follower)
        whole = got = b""
        for data, count in steps:
            room = ring.room_bytes(follower.progressed_at)
            ring.append(data[:room])
            whole += data[:room]
            begin, part = ring.read(follower.position, count)
            assert begin == follower.position
            got += part
            ring.advance(follower, begin + len(part))
        assert whole.startswith(got)
        assert got + ring.read(follower.position, capacity)[1] == whole


def test_a_reader_that_never_reads_holds_nobody_up_for_long() -> None:
    ring = Ring(Budget())
    follower = Follower(0, lambda: None)
    ring.follow(follower)
    ring.append(bytes(limits.RING_BYTES_MAX))
    assert ring.room_bytes(follower.progressed_at) == 0
    assert ring.room_bytes(follower.progressed_at + limits.FOLLOWER_STALL_S_MAX) == limits.RING_BYTES_MAX


def test_a_reader_that_trickles_holds_up_none_that_is_further() -> None:
    ring = Ring(Budget())
    quick, slow = Follower(0, lambda: None), Follower(0, lambda: None)
    ring.follow(slow)
    ring.follow(quick)
    for _ in range(10):
        ring.append(bytes(limits.RING_BYTES_MAX))
        ring.advance(slow, ring.read(slow.position, 1)[0] + 1)
        ring.advance(quick, ring.end)
        assert ring.room_bytes(slow.progressed_at) == limits.RING_BYTES_MAX
    ring.append(bytes(limits.RING_BYTES_MAX))
    ring.unfollow(quick)  # alone, it is waited for again
    ring.advance(slow, ring.start)
    assert ring.room_bytes(slow.progressed_at) == 0


@given(st.integers(1, 100_000))
def test_all_rings_together_stay_within_the_budget(count: int) -> None:
    budget = Budget()
    for _ in range(count):
        budget.join()
    assert budget.share_bytes() == limits.RING_BYTES_MIN or budget.share_bytes() * count <= limits.RING_TOTAL_BYTES_MAX
