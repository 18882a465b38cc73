"""What prestart removes so that a broker can start, and what it leaves for that."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from logagent.base.dir_names import delete_name, stray_name
from logagent.base.records import ActionKind
from logagent.base.units import NOTHING, Space
from logagent.cleanup.plan.assemble import BlastRadius, blast_radius
from logagent.cleanup.plan.plan import Proposal
from logagent.service.prestart.rules import Removals, still_lacking, to_make_room
from logagent.verdict.facts import Facts
from tests.hosts import DEVICE, HEX, directory, facts

FACTS = facts(partition_dirs=1000, partition_bytes=10**6)


def removal(n: int, *, stray: bool = True, device: int = DEVICE) -> Proposal:
    name = (stray_name if stray else delete_name)(f"t{n}", 0, HEX)
    return Proposal(ActionKind.REMOVE, directory(name, inode=n, device=device, allocated=1), "test")


def mark(p: Proposal) -> Proposal:
    return Proposal(ActionKind.MARK, p.dir, "test", new_name="t")


def made(
    due: list[Proposal], gains: list[Space], lack: Space, most: int, others: int = 0, known: Facts = FACTS
) -> Removals:
    """With the marks of those of `due` that are strays, and `others` that free nothing."""
    renames = [mark(p) for p in [*due, *(removal(1000 + n) for n in range(others))] if "stray" in p.dir.name]
    by_key = {p.key: gain for p, gain in zip(due, gains, strict=True)}
    return to_make_room(due, renames, {DEVICE: lack}, by_key, known, BlastRadius(most, 1.0))


spaces = st.builds(Space, st.integers(0, 100), st.integers(0, 5))


@given(st.lists(st.tuples(st.booleans(), spaces), max_size=8), spaces, st.integers(0, 9), st.integers(0, 4))
def test_never_beyond_the_limits_and_no_more_than_a_start_needs(
    found: list[tuple[bool, Space]], lack: Space, most: int, others: int
) -> None:
    due = [removal(n, stray=stray) for n, (stray, _) in enumerate(found)]
    gains = [gain for _, gain in found]
    got, limits = made(due, gains, lack, most, others), BlastRadius(most, 1.0)
    if got.chosen:
        beside = [p for p in got.renames if p.key not in {q.key for q in got.possible}]
        assert blast_radius([*got.possible, *beside], FACTS, limits) is None
    assert (got.stop is not None) <= (got.renames == [])
    keys = [p.key for p in (*got.possible, *got.beyond)]
    assert len(set(keys)) == len(keys) and list(got.chosen) == list(got.possible[: len(got.chosen)])
    known = {p.key: gain for p, gain in zip(due, gains, strict=True)}
    for n in range(len(got.chosen)):
        assert still_lacking({DEVICE: lack}, got.chosen[:n], known)[DEVICE]


def test_the_safest_go_first_and_the_renames_stay_where_there_is_room_for_both() -> None:
    due = [removal(n) for n in range(4)]
    got = made(due, [Space(10)] * 4, Space(15), most=4)
    assert (got.chosen, got.stop) == (due[:2], None) and [p.key for p in got.renames] == [p.key for p in due[2:]]
    assert got.possible == due and not got.beyond


def test_renames_over_the_limits_do_not_keep_a_start_from_its_room() -> None:
    due = [removal(n) for n in range(9)]
    got = made(due, [Space(10)] * 9, Space(15), most=3)
    assert (got.chosen, got.renames, len(got.beyond)) == (due[:2], [], 6)
    assert got.stop is not None and got.stop.why.fact == "9 directories within 24 hours exceed cleanup.max_dirs = 3"


def test_the_largest_go_where_the_safest_would_not_suffice() -> None:
    due = [removal(n) for n in range(5)]
    got = made(due, [Space(1)] * 4 + [Space(99)], Space(50), most=2)
    assert got.chosen == due[4:] and got.stop is not None
    # Neither suffices, then what frees more.
    assert made(due, [Space(1)] * 4 + [Space(9)], Space(50), most=2).chosen == [due[4], due[0]]


def test_where_nothing_may_be_removed_the_renames_stay_one_plan() -> None:
    due = [removal(n) for n in range(3)]
    got = made(due, [NOTHING] * 3, Space(50), most=2)
    assert (got.chosen, len(got.renames), got.stop) == ([], 3, None)


def test_limits_are_used_where_space_is_lacking() -> None:
    here, there = removal(1, stray=False), removal(2, stray=False, device=DEVICE + 1)
    more = removal(3, stray=False)
    gains = {p.key: Space(10) for p in (here, more, there)}
    lacking = {DEVICE: Space(10), DEVICE + 1: Space(10)}
    got = to_make_room([here, more, there], [], lacking, gains, FACTS, BlastRadius(2, 1.0))
    assert (got.chosen, got.beyond) == ([here, there], [more])
