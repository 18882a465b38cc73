"""Which strays go under pressure, and how much is removed so that a broker can start."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from logagent.model.naming.dir_names import stray_name
from logagent.model.planning.plan import Proposal
from logagent.model.planning.room import (
    Key,
    Room,
    needed_to_start,
    under_pressure,
    until_it_starts,
)
from logagent.model.records import ActionKind
from logagent.model.space import Space
from tests.hosts import DEVICE, HEX, directory

SIZE = 1000


def removal(n: int, *, device: int = DEVICE, action: ActionKind = ActionKind.REMOVE) -> Proposal:
    """Of a directory that looks larger than anything it gives back."""
    return Proposal(action, directory(stray_name(f"t{n}", 0, HEX), inode=n, allocated=10**9, device=device), "test")


def gains(*removals: tuple[Proposal, int]) -> dict[Key, Space]:
    return {p.key: Space(size, 4) for p, size in removals}


def yes(_: Proposal) -> bool:
    return True


sizes = st.lists(st.integers(0, 400), max_size=8)


@given(sizes, sizes, st.integers(0, SIZE), st.floats(0, 1), st.integers(0, 8))
def test_as_many_as_it_takes_and_no_more(
    early: list[int], due: list[int], used: int, level: float, allowed: int
) -> None:
    candidates = [(removal(n), size) for n, size in enumerate(early)]
    already = [(removal(100 + n), size) for n, size in enumerate(due)]
    # A rename frees nothing, and an unknown directory neither.
    others = [(removal(200, action=ActionKind.QUARANTINE), 10**6)]
    asked: list[Proposal] = []

    def may_join(p: Proposal) -> bool:
        asked.append(p)
        return len(asked) <= allowed

    chosen = under_pressure(
        [p for p, _ in candidates] + [removal(300)],
        [p for p, _ in already + others] + [removal(301)],
        gains(*candidates, *already, *others),
        {DEVICE: Room(used, SIZE - used)},
        level,
        may_join,
    )
    useful = [(p, size) for p, size in candidates if size]
    assert chosen == [p for p, _ in useful[: len(chosen)]], "the oldest first"
    left = used - sum(due)
    for _, size in useful[: len(chosen)]:
        assert left > level * SIZE, "none goes once it is enough"
        left -= size
    assert left <= level * SIZE or len(chosen) == min(allowed, len(useful))
    assert asked[: len(chosen)] == chosen, "only what is needed is asked for"


def test_one_that_the_limits_do_not_allow_does_not_keep_the_next_one() -> None:
    big, small = removal(1), removal(2)
    rooms, known = {DEVICE: Room(100, 0)}, gains((big, 10), (small, 10))
    assert under_pressure([big, small], [], known, rooms, 0.9, lambda p: p is small) == [small]


def test_each_file_system_has_its_own() -> None:
    full, empty = removal(1), removal(2, device=DEVICE + 1)
    rooms = {DEVICE: Room(95, 5), DEVICE + 1: Room(5, 95)}
    known = gains((full, 10), (empty, 10))
    assert under_pressure([full, empty], [], known, rooms, 0.9, yes) == [full]
    assert under_pressure([full, empty], [], known, {}, 0.0, yes) == [], "unknown is no pressure"


def test_what_a_start_needs_grows_with_the_partitions() -> None:
    few, many = needed_to_start([directory("a-0")]), needed_to_start(directory(f"a-{n}", inode=n) for n in range(100))
    assert few < many and many[0] >= 100 * 28 * 1024
    assert needed_to_start([directory(stray_name("a", 0, HEX))]) == needed_to_start([])


def taking(n: int, size: int) -> Proposal:
    found = directory(stray_name(f"t{n}", 0, HEX), inode=n, allocated=size)
    return Proposal(ActionKind.REMOVE, found, "test")


@given(sizes, st.integers(-100, 1000), st.integers(-5, 30))
def test_only_as_much_is_removed_as_the_start_lacks(found: list[int], missing: int, inodes: int) -> None:
    removals = [taking(n, size) for n, size in enumerate(found)]
    chosen = until_it_starts(removals, missing, inodes)
    assert chosen == removals[: len(chosen)]
    short = [
        max(missing - sum(p.dir.allocated for p in chosen[:n]), inodes - 4 * n) > 0 for n in range(len(chosen) + 1)
    ]
    assert all(short[:-1]) and (not short[-1] or chosen == removals)
