"""Which strays go under pressure, and how much is removed so that a broker can start."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from logagent.model.naming.dir_names import stray_name
from logagent.model.planning.plan import Proposal
from logagent.model.planning.room import Room, needed_to_start, under_pressure, until_it_starts
from logagent.model.records import ActionKind
from tests.hosts import DEVICE, HEX, directory

SIZE = 1000


def removal(n: int, allocated: int, *, device: int = DEVICE, files: int = 4) -> Proposal:
    found = directory(stray_name(f"t{n}", 0, HEX), inode=n, allocated=allocated, device=device, files=files)
    return Proposal(ActionKind.REMOVE, found, "test")


sizes = st.lists(st.integers(0, 400), max_size=8)


@given(sizes, sizes, st.integers(0, SIZE), st.floats(0, 1))
def test_as_many_as_it_takes_and_no_more(early: list[int], due: list[int], used: int, level: float) -> None:
    candidates = [removal(n, size) for n, size in enumerate(early)]
    already = [removal(100 + n, size) for n, size in enumerate(due)]
    chosen = under_pressure(candidates, already, {DEVICE: Room(used, SIZE - used)}, level)
    assert chosen == candidates[: len(chosen)], "the oldest first"
    left = used - sum(due)
    for p in chosen:
        assert left > level * SIZE, "none goes once it is enough"
        left -= p.dir.allocated
    assert left <= level * SIZE or chosen == candidates


def test_each_file_system_has_its_own() -> None:
    full, empty = removal(1, 10), removal(2, 10, device=DEVICE + 1)
    rooms = {DEVICE: Room(95, 5), DEVICE + 1: Room(5, 95)}
    assert under_pressure([full, empty], [], rooms, 0.9) == [full]
    assert under_pressure([full, empty], [], {}, 0.0) == [], "unknown is no pressure"


def test_what_a_start_needs_grows_with_the_partitions() -> None:
    few, many = needed_to_start([directory("a-0")]), needed_to_start(directory(f"a-{n}", inode=n) for n in range(100))
    assert few < many and many[0] >= 100 * 28 * 1024
    assert needed_to_start([directory(stray_name("a", 0, HEX))]) == needed_to_start([])


@given(sizes, st.integers(-100, 1000), st.integers(-5, 30))
def test_only_as_much_is_removed_as_the_start_lacks(found: list[int], missing: int, inodes: int) -> None:
    removals = [removal(n, size) for n, size in enumerate(found)]
    chosen = until_it_starts(removals, missing, inodes)
    assert chosen == removals[: len(chosen)]
    short = [
        max(missing - sum(p.dir.allocated for p in chosen[:n]), inodes - 4 * n) > 0 for n in range(len(chosen) + 1)
    ]
    assert all(short[:-1]) and (not short[-1] or chosen == removals)
