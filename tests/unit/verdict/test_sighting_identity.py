"""Attacks on the age of an orphan: another directory under the name of one that was seen long enough."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from logagent.base.records import DirKey, Health, Holder, HolderState, Identity, Kind, PartitionDir, Verdict
from logagent.cleanup.plan.planner import Ages, Candidates, orphans
from logagent.verdict.facts import Facts, LogDirFacts, Ruling
from logagent.verdict.marks import Sighting

DAY_MS = 86_400_000
NOW_MS = 1_800_000_000_000
AGES = Ages(3, DAY_MS)
DIR = PartitionDir(
    "/d1", "orders-0", Kind.CURRENT, "orders", 0, None, False, 7, 11, 0, 0, topic_id="A" * 22, newest_mtime_ns=5
)
SEEN = Sighting(
    "/d1", "orders-0", Identity(7, 11), "A" * 22, 5, "topic-absent", 3, NOW_MS - 2 * DAY_MS, NOW_MS - 60_000
)
WHERE = LogDirFacts("/d1", Identity(7, 2), Health.ONLINE, None, Holder(HolderState.FREE))
FACTS = Facts(
    NOW_MS,
    {"/d1": WHERE},
    rulings={DirKey("/d1", "orders-0"): Ruling(Verdict.ORPHAN, "topic-absent")},
    kafka_version=(3, 9, 1),
)


def propose(sighting: Sighting) -> tuple[int, int]:
    proposals, waiting = orphans(Candidates(dirs=[DIR], sightings={DIR.key: sighting}), AGES, FACTS, lambda: "0" * 32)
    return len(proposals), len(waiting)


def test_what_was_seen_long_enough_is_due() -> None:
    assert propose(SEEN) == (1, 0)


@pytest.mark.parametrize(
    "other",
    [
        {"identity": Identity(7, 12)},
        {"topic_id": "B" * 22},
        {"newest_mtime_ns": 4},
        {"reason": "not-a-replica"},
        {"first_ms": NOW_MS - DAY_MS, "last_ms": NOW_MS + 1},
    ],
    ids=lambda other: ",".join(other),
)
def test_sightings_of_another_directory_of_that_name_count_for_nothing(other: dict[str, Any]) -> None:
    """`prestart` counts none itself: what it finds in the journal can be of the directory's predecessor."""
    assert propose(replace(SEEN, **other)) == (0, 1)
