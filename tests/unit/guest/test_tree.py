from __future__ import annotations

from atoll.guest import tree


def entry(pid: int, parent: int, session: int, state: str = "S") -> tree.Entry:
    return tree.Entry(pid, parent, session, session, state, "x", 0.0, 1, 0)


def test_a_name_may_hold_anything() -> None:
    line = "42 (a ) (b) R 1 42 43 0 -1 0 0 0 0 0 150 50 0 0 20 0 3 0 100 4096 10 0"
    found = tree.parse_stat(line)
    assert found is not None
    assert (found.pid, found.name, found.state, found.parent, found.session) == (42, "a ) (b", "R", 1, 43)
    assert (found.threads, found.memory_bytes) == (3, 10 * tree.PAGE_BYTES)
    assert found.cpu_s == 200 / tree.TICKS_PER_S
    assert found.started_ticks == 100
    assert tree.parse_stat("garbage") is None


def test_a_tree_is_descendants_and_session() -> None:
    entries = [
        entry(1, 0, 1),
        entry(10, 1, 10),
        entry(11, 10, 10),
        entry(12, 11, 12),
        entry(13, 1, 10),
        entry(20, 1, 20),
    ]
    assert tree.members(entries, 10) == {10, 11, 12, 13}
    assert tree.members([*entries, entry(14, 10, 10, "Z")], 10) == {10, 11, 12, 13}


def test_what_was_found_before_still_belongs_to_it() -> None:
    assert tree.members([entry(12, 1, 12), entry(30, 12, 12)], 10, known=[12]) == {12, 30}


def test_who_was_there_before_is_spared_with_all_that_it_started() -> None:
    """10 is a shell; 11 is a server of an earlier command, and 13 its new worker; 12 is of the command that runs."""

    def at(ticks: int, pid: int, parent: int) -> tree.Entry:
        return entry(pid, parent, 10)._replace(started_ticks=ticks)

    entries = [at(1, 10, 1), at(5, 11, 10), at(9, 13, 11), at(8, 12, 10), at(9, 14, 12)]
    assert tree.younger(entries, 10, tree.members(entries, 10), since_ticks=8) == {12, 14}
    within_a_tick = [at(8, 10, 1), at(8, 11, 10), at(8, 13, 11), at(8, 12, 10)]
    assert tree.younger(within_a_tick, 10, tree.members(within_a_tick, 10), since_ticks=8, before={10, 11}) == {12}


def test_the_owner_is_found_by_session_or_parents() -> None:
    entries = [entry(1, 0, 1), entry(10, 1, 10), entry(11, 10, 11), entry(12, 1, 10), entry(20, 1, 20)]
    assert tree.owner_of(entries, 11, {10}) == 10
    assert tree.owner_of(entries, 12, {10}) == 10
    assert tree.owner_of(entries, 20, {10}) is None
