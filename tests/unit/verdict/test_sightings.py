"""Sightings are counted by complete inventories only, and start over for anything that is not the same directory."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from logagent.base.records import DirKey, Identity, Verdict
from logagent.verdict.facts import Facts, Ruling
from logagent.verdict.marks import Sighting, count_sightings, of_directory, orphans_seen
from tests.hosts import LOG_DIR, NOW, directory, facts

DIRS = DirKey(LOG_DIR, "/data/d2")
NAMES = ("orders-0", "orders-1", "payments-0")
STATES = st.tuples(
    st.integers(1, 3),  # inode
    st.sampled_from(["id-1", "id-2", None]),
    st.integers(0, 2),  # newest write
    st.sampled_from(["topic-absent", "not-a-replica"]),
)


def seen(log_dir: str, name: str, state: tuple[int, str | None, int, str]) -> Sighting:
    inode, topic_id, newest, reason = state
    return Sighting(log_dir, name, Identity(1, inode), topic_id, newest, reason, 0, 0, 0)


class Counting(RuleBasedStateMachine):
    """Against a naive model: for every orphan the list of inventories in a row that saw it exactly as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[DirKey, Sighting] = {}
        self.model: dict[DirKey, tuple[tuple[int, str | None, int, str], list[int]]] = {}
        self.now = NOW

    @rule(
        orphans=st.dictionaries(st.tuples(st.sampled_from(DIRS), st.sampled_from(NAMES)), STATES),
        complete=st.sets(st.sampled_from(DIRS)),
        passed=st.integers(0, 10**6),
    )
    def inventory(
        self,
        orphans: dict[DirKey, tuple[int, str | None, int, str]],
        complete: set[str],
        passed: int,
    ) -> None:
        self.now += passed
        found = [seen(*key, state) for key, state in orphans.items()]
        self.known = count_sightings(self.known, found, frozenset(complete), self.now)
        for key in [*self.model]:
            if key[0] in complete and key not in orphans:
                del self.model[key]
        for key, state in orphans.items():
            if key[0] in complete:
                before = self.model.get(key)
                same = before is not None and before[0] == state and before[1][0] <= before[1][-1] <= self.now
                times = before[1] if before is not None and same else []
                self.model[key] = (state, [*times, self.now])

    @rule(back=st.integers(1, 10**6))
    def the_clock_is_set_back(self, back: int) -> None:
        self.now -= back

    @invariant()
    def both_agree(self) -> None:
        assert self.known.keys() == self.model.keys()
        for key, (_, times) in self.model.items():
            counted = self.known[key]
            assert (counted.count, counted.first_ms, counted.last_ms) == (len(times), times[0], times[-1])
            assert counted.key == key


TestCounting = Counting.TestCase
TestCounting.settings = settings(deadline=None, max_examples=60, stateful_step_count=20)


def test_only_proven_orphans_that_could_be_read_are_sightings() -> None:
    dirs = [directory("orders-0"), directory("orders-1"), directory("orders-2", error="symlink"), directory("a-0")]
    seen_now: Facts = replace(
        facts(orphans=[DirKey(LOG_DIR, "orders-0"), DirKey(LOG_DIR, "orders-2")]),
        rulings={
            DirKey(LOG_DIR, "orders-0"): Ruling(Verdict.ORPHAN, "topic-absent"),
            DirKey(LOG_DIR, "orders-1"): Ruling(Verdict.UNKNOWN, "reassigning"),
            DirKey(LOG_DIR, "orders-2"): Ruling(Verdict.ORPHAN, "topic-absent"),
        },
    )
    assert [(s.name, s.reason, s.count, s.first_ms) for s in orphans_seen(dirs, seen_now)] == [
        ("orders-0", "topic-absent", 0, NOW)
    ]


@pytest.mark.parametrize("newest", [-(2**70), -1, NOW * 1_000_000, 2**63, 2**70])
def test_an_orphan_is_seen_again_whatever_the_time_of_its_newest_segment(newest: int) -> None:
    """The journal has 64 bits for it, some file systems have more."""
    d = directory("orders-0", newest_mtime_ns=newest)
    (first,) = orphans_seen([d], facts(orphans=[DirKey(LOG_DIR, "orders-0")]))
    assert -(2**63) <= first.newest_mtime_ns < 2**63
    known = count_sightings({}, [first], frozenset({LOG_DIR}), NOW)
    known = count_sightings(known, [first], frozenset({LOG_DIR}), NOW + 1)
    assert known[DirKey(LOG_DIR, "orders-0")].count == 2
    assert of_directory(known[DirKey(LOG_DIR, "orders-0")], d, first.reason, NOW + 1) is not None
