"""The blast radius: over the plan as a whole, with 24 hours of history, never over what was approved."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from logagent.base.config.settings import Settings
from logagent.base.dir_names import RANDOM_BYTES, rename_uuid
from logagent.base.records import ActionKind, DirKey, Identity
from logagent.cleanup.plan.assemble import (
    BlastRadius,
    RecentDirs,
    assemble,
    blast_radius,
    dirs_of_a_day,
    on_disk,
    within_limits,
)
from logagent.cleanup.plan.plan import Proposal, plan_id
from logagent.deletion.controller import deletion_plan
from logagent.verdict.facts import Facts, RecentAction
from tests.hosts import ASSIGNED, DEVICE, HEX, LOG_DIR, TOPIC_ID, directory, facts, proposal

LIMITS = BlastRadius(max_dirs=20, max_fraction=0.1)


def remove(number: int, size: int = 1, *, approved: bool = False) -> Proposal:
    found = directory(f"orders-{number}.{HEX}-delete", inode=number, allocated=size)
    return proposal(ActionKind.REMOVE, found, approved=approved)


def recent(number: int, size: int = 1, *, approved: bool = False) -> RecentAction:
    return RecentAction(Identity(DEVICE, number), TOPIC_ID, number, size, approved)


def host(dirs: int = 1000, size: int = 10**9, done: tuple[RecentAction, ...] = ()) -> Facts:
    return facts(partition_dirs=dirs, partition_bytes=size, recent=done)


COUNTS = st.integers(0, 60)


@given(COUNTS, COUNTS, COUNTS)
def test_dirs_of_today_count_each_once(planned: int, done: int, both: int) -> None:
    """`both`: directories that were renamed within the day and are removed by this plan."""
    proposals = [remove(n) for n in range(planned + both)]
    history = tuple(recent(n) for n in [*range(planned, planned + both), *range(1000, 1000 + done)])
    distinct = planned + both + done
    stopped = blast_radius(proposals, host(done=history), LIMITS) is not None
    assert stopped == (bool(proposals) and distinct > 20)


@given(st.integers(1, 2000), st.integers(1, 20))
def test_the_fraction_of_dirs(dirs: int, planned: int) -> None:
    stopped = blast_radius([remove(n) for n in range(planned)], host(dirs=dirs), LIMITS) is not None
    assert stopped == (planned > 1 and planned > 0.1 * dirs)


@given(st.lists(st.integers(0, 10**7), min_size=1, max_size=20))
def test_the_fraction_of_bytes(sizes: list[int]) -> None:
    proposals = [remove(n, size) for n, size in enumerate(sizes)]
    stopped = blast_radius(proposals, host(size=10**8), LIMITS) is not None
    assert stopped == (len(sizes) > 1 and sum(sizes) > 10**7)


@given(size=st.integers(0, 10**15), dirs=st.integers(0, 5))
def test_one_dir_is_always_allowed(size: int, dirs: int) -> None:
    assert blast_radius([remove(1, size)], host(dirs=dirs, size=0), BlastRadius(1, 0.0)) is None


def test_the_second_of_the_day_is_not() -> None:
    assert blast_radius([remove(1)], host(done=(recent(2),)), BlastRadius(1, 1.0)) is not None


@given(COUNTS, COUNTS)
def test_what_was_approved_never_counts_again(approved: int, done: int) -> None:
    proposals = [remove(n, 10**9, approved=True) for n in range(approved)]
    history = tuple(recent(1000 + n, 10**9, approved=True) for n in range(done))
    assert blast_radius(proposals, host(done=history), LIMITS) is None
    assert blast_radius([*proposals, remove(5000)], host(done=history), LIMITS) is None


@given(st.integers(21, 40))
def test_what_was_approved_as_a_stray_of_the_brokers_stays_so(count: int) -> None:
    """Its removal was approved and did not come to its end; nothing but the history of the day knows of it."""
    proposals = [remove(n) for n in range(count)]
    history = tuple(recent(n, approved=True) for n in range(count))
    assert blast_radius(proposals, host(done=history), LIMITS) is None
    assert blast_radius(proposals, host(), LIMITS) is not None


def test_an_inode_that_was_given_to_another_partition_is_another_directory() -> None:
    proposals = [remove(n) for n in range(30)]
    elsewhere = tuple(replace(recent(n, approved=True), topic_id="another topic's id") for n in range(30))
    assert blast_radius(proposals, host(done=elsewhere), LIMITS) is not None


def test_a_removal_that_was_interrupted_counts_once_though_its_topic_id_is_gone() -> None:
    history = tuple(recent(n) for n in range(20))
    left = [replace(p, dir=replace(p.dir, topic_id=None)) for p in map(remove, range(20))]
    assert blast_radius(left, host(done=history), LIMITS) is None
    approved = tuple(replace(r, approved=True) for r in history)
    assert blast_radius([*left, remove(77)], host(done=approved), BlastRadius(1, 1.0)) is None


@given(st.integers(21, 60))
def test_restoring_takes_nothing_away(count: int) -> None:
    proposals = [replace(remove(n), action=ActionKind.RESTORE) for n in range(count)]
    assert blast_radius(proposals, host(), LIMITS) is None


def test_hosts_and_controller_have_the_same_limits_by_default() -> None:
    cleanup = Settings().cleanup
    assert BlastRadius() == BlastRadius(cleanup.max_dirs, cleanup.max_fraction) == deletion_plan.LIMITS


def test_the_last_assigned_dir_of_the_host_needs_approval() -> None:
    kept = proposal(ActionKind.MARK, directory("kept-0", inode=1), new_name=f"kept-0.{HEX}-delete")
    assert kept.dir.key == ASSIGNED
    stop = blast_radius([kept], host(), LIMITS)
    assert stop is not None and "without any assigned" in stop.why.fact
    more = replace(host(), assigned_dirs=lambda: {ASSIGNED, DirKey(LOG_DIR, "kept-1")})
    assert blast_radius([kept], more, LIMITS) is None
    # Removing marked dirs takes no assigned one, also where there is none at all.
    assert blast_radius([remove(1)], replace(host(), assigned_dirs=tuple), LIMITS) is None


@given(st.integers(21, 60))
def test_a_plan_that_trips_stops_whole_until_exactly_it_is_allowed(count: int) -> None:
    proposals = [remove(n) for n in range(count)]
    plan = assemble(proposals, [], host(), [], LIMITS)
    assert plan.needs_approval is not None
    assert plan.needs_approval.why.code == "blast-radius"
    assert f"--execute --approve {plan.plan_id}" in plan.needs_approval.why.hint
    assert plan.needs_approval.allocated == count
    allowed = assemble(proposals, [], host(), [], LIMITS, approve=plan.plan_id)
    assert allowed.needs_approval is None
    assert len(allowed.actions) == count
    assert [p for p in allowed.actions if not p.approved] == []
    other = assemble(proposals, [], host(), [], LIMITS, approve=plan_id(proposals[1:]))
    assert other.needs_approval is not None


# Few inodes, ids and partitions: inodes are given away again, and an interrupted removal has taken the topic id.
TOLD_APART = st.tuples(
    st.integers(1, 3), st.integers(1, 3), st.sampled_from(["A", "B", None]), st.integers(0, 2), st.integers(0, 5)
)


@given(st.lists(TOLD_APART, max_size=6), st.lists(st.tuples(TOLD_APART, st.booleans()), max_size=6))
def test_what_is_taken_is_never_more_than_what_there_was(
    history: list[tuple[int, int, str | None, int, int]],
    drawn: list[tuple[tuple[int, int, str | None, int, int], bool]],
) -> None:
    """A host that may lose everything never needs an approval, whatever was removed or half removed before."""
    standing = {(device, inode): (rest, planned) for (device, inode, *rest), planned in drawn}
    dirs, proposals = [], []
    for number, ((device, inode), ((topic_id, partition, size), planned)) in enumerate(standing.items()):
        name = f"t-{partition}.{number:032x}-delete"
        found = directory(name, inode=inode, device=device, topic_id=topic_id, allocated=size)
        dirs.append(found)
        if planned:
            proposals.append(proposal(ActionKind.REMOVE, found))
    done = tuple(RecentAction(Identity(d, i), topic, p, size, False) for d, i, topic, p, size in history)
    count, size = dirs_of_a_day(dirs, RecentDirs(done))
    assert blast_radius(proposals, host(count, size, done), BlastRadius(10**6, 1.0)) is None


def away(number: int) -> Proposal:
    return proposal(ActionKind.MARK, directory(f"orders-{number}", inode=number))


def test_an_approval_ends_with_a_restore() -> None:
    """Thirty were set aside with approval and restored: to delete them is another plan, and needs its own."""
    approved = [recent(n, approved=True) for n in range(30)]
    back = [replace(recent(n), restored=True) for n in range(30)]
    deleting = [away(n) for n in range(30)]
    assert blast_radius(deleting, host(done=(*approved, *back)), LIMITS) is not None
    # Nor where somebody else gave them their names back, of which the journal knows nothing.
    assert blast_radius(deleting, host(done=tuple(approved)), LIMITS) is not None
    # What follows from the approved deed itself is covered, also where that was approved again later.
    again = [recent(n, approved=True) for n in range(30)]
    removing = [remove(n) for n in range(30)]
    assert blast_radius(removing, host(done=tuple(approved)), LIMITS) is None
    assert blast_radius(removing, host(done=(*approved, *back)), LIMITS) is not None
    assert blast_radius(removing, host(done=(*approved, *back, *again)), LIMITS) is None


def test_what_came_back_counts_no_second_time() -> None:
    back = tuple(replace(recent(n), restored=True) for n in range(30))
    assert RecentDirs(back).sizes == {} and blast_radius([away(100), away(101)], host(done=back), LIMITS) is None


def test_half_of_a_directory_counts_as_the_whole_that_it_was() -> None:
    half_gone = (recent(1, 10**8), recent(1, 1))
    assert list(RecentDirs(half_gone).sizes.values()) == [10**8]
    assert blast_radius([remove(1, 1), remove(2, 1)], host(size=10**8, done=(recent(1, 10**8),)), LIMITS) is not None


def test_where_nothing_is_known_to_be_assigned_no_current_directory_goes_without_approval() -> None:
    stop = blast_radius([away(1)], replace(host(), assigned_dirs=tuple), LIMITS)
    assert stop is not None and "without any assigned" in stop.why.fact


def test_what_another_state_dir_renamed_today_counts_and_what_is_older_or_known_does_not() -> None:
    day = 24 * 3_600_000
    names = [f"t-{n}.{rename_uuid(at, bytes(RANDOM_BYTES))}-stray" for n, at in enumerate((10 * day, 9 * day - 1))]
    dirs = [directory(name, inode=n) for n, name in enumerate(names, 1)]
    assert [r.identity.inode for r in on_disk(dirs, RecentDirs(()), 9 * day)] == [1]
    known = RecentDirs((RecentAction(dirs[0].identity, dirs[0].topic_id, dirs[0].partition, 1, approved=True),))
    assert on_disk(dirs, known, 9 * day) == ()


JOINING = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 60), st.booleans()), max_size=12)


@given(JOINING, JOINING, JOINING, st.integers(0, 8), st.integers(50, 200))
def test_what_may_join_is_what_would_not_stop_the_plan(
    planned: list[tuple[int, int, bool]],
    asked: list[tuple[int, int, bool]],
    done: list[tuple[int, int, bool]],
    most: int,
    size: int,
) -> None:
    """Directories of the last 24 hours, of the plan and of what joins it may be the same ones."""
    there = host(size=size, done=tuple(recent(n, s, approved=a) for n, s, a in done))
    plan, limits = [remove(n, s, approved=a) for n, s, a in planned], BlastRadius(most, 0.5)
    may_join = within_limits(plan, there, limits)
    stopped = blast_radius(plan, there, limits) is not None
    for p in (remove(n, s, approved=a) for n, s, a in asked):
        assert may_join(p) == (not stopped and (p.approved or blast_radius([*plan, p], there, limits) is None))
        if not stopped and blast_radius([*plan, p], there, limits) is None:
            plan.append(p)
