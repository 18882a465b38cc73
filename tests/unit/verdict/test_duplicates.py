"""Of two copies of one partition on this host only one that the other covers may go, and never both."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logagent.base.records import Kind, PartitionDir, Verdict
from logagent.kafka.extents import LogExtent
from logagent.verdict.copies import as_loaded, decide_duplicate, duplicates, pairs
from logagent.verdict.facts import Ruling
from tests.hosts import LOG_DIR, directory, facts

D2 = "/data/d2"
ONE, TWO = directory("orders-0"), directory("orders-0", log_dir=D2, inode=101)
ASSIGNED = Ruling(Verdict.ASSIGNED)
WRONG = Ruling(Verdict.UNKNOWN, "wrong-directory")


def chosen(one: LogExtent, two: LogExtent, *rulings: Ruling) -> list[str]:
    first, second = rulings or (ASSIGNED, ASSIGNED)
    known = facts(rulings={ONE.key: first, TWO.key: second})
    logs = {ONE.key: one, TWO.key: two}
    return [d.dir.log_dir for d in duplicates([ONE, TWO], known, logs).found]


def log(end: int, *epochs: tuple[int, int], start: int = 0) -> LogExtent:
    return LogExtent(start, end, epochs or ((1, 0),))


def test_the_shorter_one_of_the_same_lineage_goes() -> None:
    assert chosen(log(100), log(120)) == [LOG_DIR]
    assert chosen(log(120), log(100)) == [D2]


def test_of_two_that_are_alike_one_goes_the_one_in_the_wrong_log_dir_first() -> None:
    assert chosen(log(100), log(100)) == [LOG_DIR]
    assert chosen(log(100), log(100), ASSIGNED, WRONG) == [D2]
    # A directory id alone offers nothing: what the other one has not all of stays.
    assert chosen(log(100), log(120), ASSIGNED, WRONG) == [LOG_DIR]


@pytest.mark.parametrize("full", [LOG_DIR, D2])
def test_of_two_that_are_alike_the_one_on_the_fuller_file_system_goes(full: str) -> None:
    keys = [d.key for d in (ONE, TWO)]
    known = facts(rulings=dict.fromkeys(keys, ASSIGNED))
    free = {LOG_DIR: 9000, D2: 9000} | {full: 10}

    def going(one: LogExtent, two: LogExtent) -> list[str]:
        logs = dict(zip(keys, (one, two), strict=True))
        return [d.dir.log_dir for d in duplicates([ONE, TWO], known, logs, (), free).found]

    assert going(log(100), log(100)) == [full]
    # Free space alone offers nothing: what the other one has not all of stays.
    assert going(log(100), log(120)) == [LOG_DIR]
    known = facts(rulings={keys[0]: ASSIGNED, keys[1]: WRONG})
    assert going(log(100), log(100)) == [D2]


@given(st.sets(st.sampled_from([LOG_DIR, D2])), st.sampled_from([90, 100]), st.sampled_from([90, 100]))
def test_what_is_left_out_is_no_candidate_and_what_covers_is_said(spared: set[str], one: int, two: int) -> None:
    keys = [d.key for d in (ONE, TWO)]
    known = facts(rulings=dict.fromkeys(keys, ASSIGNED))
    decided = duplicates([ONE, TWO], known, dict(zip(keys, (log(one), log(two)), strict=True)), spared)
    may_go = {LOG_DIR: one <= two, D2: two <= one}
    assert len(decided.found) <= 1, "never both"
    assert {d.dir.log_dir for d in decided.found} <= {d for d, may in may_go.items() if may and d not in spared}
    assert bool(decided.found) == any(may and d not in spared for d, may in may_go.items())
    ((covering, fact),) = decided.covering.items()
    assert decided.kept == {} and may_go[D2 if covering[0] == LOG_DIR else LOG_DIR]
    assert [d for d in decided.found if not (covering == d.other.key and d.dir.log_dir in fact)] == []
    assert fact.endswith("left out") == (not decided.found)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (log(110, (1, 0), (2, 100)), log(150, (1, 0), (3, 100))),
        (log(100), log(120, start=50)),
        (log(100), LogExtent(0, None, problem="torn")),
        (LogExtent(0, None, problem="torn"), LogExtent(0, None, problem="torn")),
        (log(100), LogExtent(None, None)),
    ],
    ids=["diverged", "begins later", "torn", "both torn", "empty"],
)
def test_what_is_not_covered_stays(one: LogExtent, two: LogExtent) -> None:
    assert chosen(one, two) == [] or chosen(one, two) == [D2]
    assert not decide_duplicate(one, two, TWO).may_go


@pytest.mark.parametrize("reason", ["no-assignments", "stale-assignments", "no-topic-id", "reassigning"])
def test_whatever_is_unknown_stays(reason: str) -> None:
    unknown = Ruling(Verdict.UNKNOWN, reason)
    assert chosen(log(100), log(120), unknown, unknown) == []


def test_what_may_lack_a_segment_covers_nothing() -> None:
    one = LogExtent(0, 100, ((1, 0),), log_bytes=5000)
    two = LogExtent(0, 120, ((1, 0),), log_bytes=4999)
    assert chosen(one, two) == []
    assert chosen(one, replace(two, log_bytes=5000)) == [LOG_DIR]


def test_a_copy_counts_as_its_broker_will_load_it() -> None:
    assert as_loaded(log(100), 0) == log(100)
    assert as_loaded(log(100), 40) == log(100, start=40)
    assert as_loaded(log(100, start=60), 40) == log(100, start=60)
    # It deletes every segment.
    assert chosen(log(100), as_loaded(log(120), 121)) == []
    assert chosen(as_loaded(log(100), 101), as_loaded(log(120), 0)) == []


def test_one_directory_seen_twice_is_no_pair() -> None:
    """A log dir that is a bind mount of the other one: it would be set aside in both."""
    assert pairs([ONE, directory("orders-0", log_dir=D2, inode=ONE.inode)]) == []
    assert pairs([ONE, replace(TWO, removal_started=True)]) == []
    assert pairs([ONE, TWO]) == [(ONE, TWO)]


def test_three_are_for_a_person() -> None:
    three = [ONE, TWO, directory("orders-0", log_dir="/data/d3")]
    assert pairs(three) == []
    assert pairs([ONE, directory("orders-0", log_dir=D2, topic_id=None)]) == []
    assert pairs([ONE, directory("orders-1", log_dir=D2)]) == []


lineages = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), min_size=1, max_size=4)


@given(lineages, lineages)
def test_nothing_goes_whose_records_are_not_all_in_the_other(
    one: list[tuple[int, int]], two: list[tuple[int, int]]
) -> None:
    """Records are (offset, epoch); two logs that took them from leaders, epoch after epoch."""

    def built(steps: list[tuple[int, int]]) -> tuple[set[tuple[int, int]], LogExtent]:
        end, epoch = 0, 0
        epochs: list[tuple[int, int]] = []
        records: set[tuple[int, int]] = set()
        for by, count in steps:
            epoch += by
            if not epochs or epochs[-1][0] != epoch:
                epochs.append((epoch, end))
            records |= {(offset, epoch) for offset in range(end, end + count)}
            end += count
        return records, LogExtent(0, end, tuple(epochs))

    (mine, own), (theirs, other) = built(one), built(two)
    # A leader of an epoch writes each offset once: where both have an epoch, it begins at the same offset.
    starts: dict[int, int] = dict(other.epochs)
    if any(starts.get(epoch, start) != start for epoch, start in own.epochs):
        return
    if decide_duplicate(own, other, TWO).may_go:
        last = {record for record in mine if record[1] == own.last_epoch}
        assert last <= theirs


@pytest.mark.parametrize(
    "two",
    [replace(TWO, kind=Kind.STRAY), replace(TWO, error="symlink"), replace(TWO, log_dir=LOG_DIR, name="orders-00")],
)
def test_only_readable_current_directories_of_two_log_dirs_are_a_pair(two: PartitionDir) -> None:
    assert pairs([ONE, two]) == []


def test_why_neither_of_a_pair_is_offered_is_said_of_each() -> None:
    known = facts(rulings={d.key: ASSIGNED for d in (ONE, TWO)})
    keys = [d.key for d in (ONE, TWO)]
    apart = duplicates(
        [ONE, TWO], known, dict(zip(keys, (log(110, (1, 0), (2, 100)), log(150, (1, 0), (3, 100))), strict=True))
    )
    assert apart.found == [] and list(apart.kept) == keys
    assert [why for why in apart.kept.values() if "not known to be covered: it ends at offset 1" not in why] == []
    emptied = as_loaded(log(100), 500)
    gone = duplicates([ONE, TWO], known, dict(zip(keys, (emptied, emptied), strict=True))).kept
    assert [
        why for why in gone.values() if not ("does not count: a broker empties it" in why and "None" not in why)
    ] == []
    assert duplicates([ONE, TWO], known, {}).kept.keys() == set(keys)
    # Where one may go, the other one is a copy like any other; what is nobody's has a reason of its own.
    assert duplicates([ONE, TWO], known, dict(zip(keys, (log(100), log(120)), strict=True))).kept == {}
    assert duplicates([ONE, TWO], facts(), {}).kept == {}
    three = [ONE, TWO, directory("orders-0", log_dir="/data/d3", inode=102)]
    assert len(duplicates(three, known, {}).kept) == 3


def test_beside_one_whose_id_was_not_read_neither_goes() -> None:
    """A third directory of the name, a link say, may be of the partition, too, and lead to either."""
    link = replace(directory("orders-0", log_dir="/data/d3", inode=102), topic_id=None, error="symlink")
    known = facts(rulings=dict.fromkeys((ONE.key, TWO.key), ASSIGNED))
    logs = {ONE.key: log(100), TWO.key: log(120)}
    decided = duplicates([ONE, TWO, link], known, logs)
    assert decided.found == [] and decided.kept.keys() == {ONE.key, TWO.key}
    assert "not read" in decided.kept[ONE.key]
    elsewhere = replace(link, name="orders-1", partition=1)
    assert duplicates([ONE, TWO, elsewhere], known, logs).found != []
