"""The decision on one directory: every line of its table, and what may never happen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from logagent.base.claims import Claim, Held, Witness
from logagent.base.records import Kind, PartitionDir, Verdict
from logagent.kafka.image import (
    NEWEST_METADATA_VERSION,
    RESERVED_DIRECTORY_IDS,
    AssignmentImage,
    BrokerRegistration,
    PartitionAssignment,
    Source,
    Topic,
    make_image,
)
from logagent.verdict.facts import Ruling
from logagent.verdict.rules import CLOCK_TOLERANCE_MS, Host, VerdictReason, combine, contradict, decide
from tests import verdict_table
from tests.metadata_writer import id_of
from tests.verdict_table import TABLE, Line

NOW = 1_800_000_000_000
MAX_AGE = 900_000
HERE, ELSEWHERE = id_of(901), id_of(902)
LIVES, MOVED, MOVING, GONE, NEW = (id_of(n) for n in range(5))
HOST = Host(node_id=1, cluster_id="ours", max_age_ms=MAX_AGE)


def image(**changes: Any) -> AssignmentImage:
    topics = [
        Topic("lives", LIVES, {0: PartitionAssignment((1, 2), (1, 2), directories=(HERE, ELSEWHERE), leader=1)}),
        Topic("moved", MOVED, {0: PartitionAssignment((2, 3), (2, 3))}),
        Topic("moving", MOVING, {0: PartitionAssignment((2, 3), (2,), adding=(3,))}),
        Topic("again", NEW, {0: PartitionAssignment((1,))}),
        Topic("__consumer_offsets", id_of(50), {0: PartitionAssignment((2,))}),
        Topic("old", None, {0: PartitionAssignment((1,))}),
    ]
    of: dict[str, Any] = {
        "source": Source.KRAFT_LOG,
        "cluster_id": "ours",
        "at_ms": NOW - 500,
        "known_until_ms": NOW - 500,
        "complete": True,
        "metadata_version": NEWEST_METADATA_VERSION,
        **changes,
    }
    return make_image(of.pop("topics", topics), AssignmentImage(**of))


def directory(topic: str | None, topic_id: str | None, **changes: Any) -> PartitionDir:
    made = PartitionDir(
        log_dir="/d1",
        name=f"{topic}-0",
        kind=Kind.CURRENT,
        topic=topic,
        partition=0,
        uuid=None,
        truncated=False,
        device=1,
        inode=2,
        ctime_ns=(NOW - 3_600_000) * 1_000_000,
        mtime_ns=(NOW - 3_600_000) * 1_000_000,
        topic_id=topic_id,
    )
    return replace(made, **changes)


def ruled(one: PartitionDir, from_image: AssignmentImage | None, host: Host = HOST, **more: Any) -> Ruling:
    ruling = decide(one, from_image, host, **{"now_ms": NOW, "directory_id": HERE, **more})
    assert ruling is not None
    return ruling


def outcome(ruling: Ruling) -> tuple[str, str | None]:
    return str(ruling.verdict), ruling.reason


ASSIGNED = ("assigned", None)


@pytest.mark.parametrize("line", TABLE, ids=lambda line: line.name)
def test_the_truth_table(line: Line) -> None:
    """The fleet's job passes the same lines: `tests/spark/report/test_verdict_table.py`."""
    one = directory(
        line.topic,
        line.topic_id,
        kind=line.kind,
        partition=line.partition,
        ctime_ns=line.written_ms * 1_000_000,
        mtime_ns=line.written_ms * 1_000_000,
    )
    known = None if line.image is None else verdict_table.image(**line.image)
    host = Host(line.node_id, verdict_table.CLUSTER, verdict_table.MAX_AGE)
    absent = {line.topic_id} if line.proven and line.topic_id is not None else None
    found = ruled(one, known, host, now_ms=verdict_table.NOW, directory_id=line.directory_id, absent_by_id=absent)
    assert outcome(found) == line.outcome


@pytest.mark.parametrize("kind", [k for k in Kind if k not in (Kind.CURRENT, Kind.FUTURE)])
def test_other_kinds_have_no_verdict(kind: Kind) -> None:
    assert decide(directory("gone", GONE, kind=kind), image(), HOST, now_ms=NOW) is None


@pytest.mark.parametrize(
    ("directories", "directory_id", "kind", "answer"),
    [
        ((HERE, ELSEWHERE), HERE, Kind.CURRENT, ASSIGNED),
        ((ELSEWHERE, HERE), HERE, Kind.CURRENT, ("unknown", "wrong-directory")),
        ((ELSEWHERE, HERE), HERE, Kind.FUTURE, ASSIGNED),
        ((ELSEWHERE, HERE), None, Kind.CURRENT, ASSIGNED),
        ((), HERE, Kind.CURRENT, ASSIGNED),
        *(((reserved, HERE), HERE, Kind.CURRENT, ASSIGNED) for reserved in sorted(RESERVED_DIRECTORY_IDS)[:4]),
    ],
)
def test_a_directory_is_a_finding_and_never_an_orphan(
    directories: tuple[str, ...], directory_id: str | None, kind: Kind, answer: tuple[str, str | None]
) -> None:
    topics = [Topic("lives", LIVES, {0: PartitionAssignment((1, 2), directories=directories)})]
    found = ruled(directory("lives", LIVES, kind=kind), image(topics=topics), directory_id=directory_id)
    assert outcome(found) == answer


@pytest.mark.parametrize(
    ("changes", "host", "reason"),
    [
        ({"topics": []}, HOST, "no-assignments"),
        ({"topics": [Topic("lives", LIVES, {0: PartitionAssignment((2,))})]}, HOST, "no-assignments"),
        ({"cluster_id": "theirs"}, HOST, "foreign-cluster"),
        ({"cluster_id": None}, HOST, "foreign-cluster"),
        ({}, replace(HOST, cluster_id=None), "foreign-cluster"),
        ({}, replace(HOST, node_id=None), "foreign-cluster"),
        ({"at_ms": NOW - MAX_AGE - 1}, HOST, "stale-assignments"),
        ({"at_ms": NOW + CLOCK_TOLERANCE_MS + 1}, HOST, "stale-assignments"),
    ],
)
@pytest.mark.parametrize("topic_id", [LIVES, GONE, MOVED])
def test_an_image_that_cannot_be_used(changes: dict[str, Any], host: Host, reason: str, topic_id: str) -> None:
    found = ruled(directory("lives", topic_id), image(**changes), host)
    assert outcome(found) == ("unknown", reason)


def test_no_image_at_all() -> None:
    assert outcome(ruled(directory("gone", GONE), None)) == ("unknown", "no-assignments")


def test_stale_and_foreign_are_refused_with_the_figure() -> None:
    stale = ruled(directory("gone", GONE), image(at_ms=NOW - 1_000_000))
    assert stale.detail is not None and "16 min old, more than assignments.max_age (15 min)" in stale.detail
    foreign = ruled(directory("gone", GONE), image(cluster_id="theirs"))
    assert foreign.detail is not None and "of cluster theirs, not ours" in foreign.detail


@pytest.mark.parametrize("age_ms", [-CLOCK_TOLERANCE_MS, 0, MAX_AGE])
def test_the_bounds_of_age_are_inclusive(age_ms: int) -> None:
    assert outcome(ruled(directory("gone", GONE), image(at_ms=NOW - age_ms))) == ("orphan", "topic-absent")


@pytest.mark.parametrize("absent", [None, set(), {LIVES}])
def test_a_list_that_leaves_a_topic_out_proves_nothing(absent: set[str] | None) -> None:
    listed = image(source=Source.ADMIN, complete=False)
    for topic in ("gone", "again"):
        found = ruled(directory(topic, GONE), listed, absent_by_id=absent)
        assert outcome(found) == ("unknown", "no-assignments")
    # What the list does say is believed.
    assert outcome(ruled(directory("moved", MOVED), listed, absent_by_id=absent)) == ("orphan", "not-a-replica")


@pytest.mark.parametrize(
    ("ctime_ms", "mtime_ms", "answer"),
    [
        (NOW - 500, NOW - 500, ("orphan", "topic-absent")),
        (NOW - 499, NOW - 499, ("unknown", "stale-assignments")),
        (NOW, NOW - 600, ("orphan", "topic-absent")),
        (NOW - 600, NOW, ("orphan", "topic-absent")),
    ],
)
def test_a_directory_younger_than_the_image(ctime_ms: int, mtime_ms: int, answer: tuple[str, str]) -> None:
    one = directory("gone", GONE, ctime_ns=ctime_ms * 1_000_000, mtime_ns=mtime_ms * 1_000_000)
    assert outcome(ruled(one, image())) == answer


@pytest.mark.parametrize(
    ("isr", "fenced", "last"),
    [((1, 2), False, False), ((1, 2), True, True), ((1,), False, True), ((), False, None), ((1, 9), False, True)],
)
def test_last_copy(isr: tuple[int, ...], fenced: bool, last: bool | None) -> None:
    topics = [Topic("lives", LIVES, {0: PartitionAssignment((1, 2, 9), isr)})]
    brokers = {1: BrokerRegistration(1, (), False), 2: BrokerRegistration(2, (), fenced)}
    assert ruled(directory("lives", LIVES), image(topics=topics, brokers=brokers)).last_copy is last


def test_last_copy_where_brokers_are_not_known() -> None:
    assert ruled(directory("lives", LIVES), image()).last_copy is False


# -- two sources -----------------------------------------------------------------------------------

ORPHAN = Ruling(Verdict.ORPHAN, VerdictReason.TOPIC_ABSENT, "no topic has the id")
LIVING = Ruling(Verdict.ASSIGNED)
UNSURE = Ruling(Verdict.UNKNOWN, VerdictReason.REASSIGNING, "being moved")


@pytest.mark.parametrize(
    ("first", "second", "answer"),
    [
        (ORPHAN, None, ("orphan", "topic-absent")),
        (ORPHAN, ORPHAN, ("orphan", "topic-absent")),
        (ORPHAN, replace(ORPHAN, reason=VerdictReason.NOT_A_REPLICA), ("unknown", "sources-disagree")),
        (ORPHAN, LIVING, ("unknown", "sources-disagree")),
        (ORPHAN, UNSURE, ("unknown", "sources-disagree")),
        (LIVING, ORPHAN, ("unknown", "sources-disagree")),
        (LIVING, UNSURE, ASSIGNED),
        (LIVING, None, ASSIGNED),
        (UNSURE, ORPHAN, ("unknown", "reassigning")),
        (UNSURE, LIVING, ("unknown", "reassigning")),
    ],
)
def test_combine(first: Ruling, second: Ruling | None, answer: tuple[str, str | None]) -> None:
    combined = combine(first, second)
    assert outcome(combined) == answer
    if combined.reason == VerdictReason.SOURCES_DISAGREE:
        assert combined.detail is not None and second is not None
        assert str(first.verdict) in combined.detail and str(second.verdict) in combined.detail


def test_an_image_that_may_not_know_everything_proves_no_orphan() -> None:
    for topic, topic_id in (("gone", GONE), ("again", GONE), ("moved", MOVED)):
        assert outcome(ruled(directory(topic, topic_id), image()))[0] == "orphan"
        ruling = ruled(directory(topic, topic_id), image(open_transaction=True))
        assert outcome(ruling) == ("unknown", "no-assignments")
        assert "transaction" in (ruling.detail or "")
    assert outcome(ruled(directory("lives", LIVES), image(open_transaction=True))) == ASSIGNED


@pytest.mark.parametrize("level", [NEWEST_METADATA_VERSION + 1, 99])
def test_above_the_tested_levels_only_removals_are_proven(level: int) -> None:
    ahead = image(metadata_version=level, brokers={n: BrokerRegistration(n, fenced=False) for n in (1, 2)})
    assert outcome(ruled(directory("gone", GONE), ahead)) == ("orphan", "topic-absent")
    assert outcome(ruled(directory("again", GONE), ahead)) == ("orphan", "topic-recreated")
    moved = ruled(directory("moved", MOVED), ahead)
    assert outcome(moved) == ("unknown", "no-assignments")
    assert f"its metadata.version is {level}, the newest tested one is 34" in (moved.detail or "")
    # Nor who is in sync: what a smaller ISR means changed once without a change of its record (KAFKA-15021).
    lives = ruled(directory("lives", LIVES), ahead)
    assert outcome(lives) == ASSIGNED and lives.last_copy is None
    assert Claim.OTHERS_IN_SYNC not in {held.claim for held in lives.proof}
    # A lower one since leaves what was written before; one that is not known may be any.
    for doubted, says in (
        (replace(image(), earlier_metadata_version=level), f"was {level}"),
        (image(metadata_version=None), "does not say"),
    ):
        moved = ruled(directory("moved", MOVED), doubted)
        assert outcome(moved) == ("unknown", "no-assignments") and says in (moved.detail or "")
        assert outcome(ruled(directory("gone", GONE), doubted)) == ("orphan", "topic-absent")
    asked = image(metadata_version=None, source=Source.ADMIN, complete=False)
    assert outcome(ruled(directory("moved", MOVED), asked)) == ("orphan", "not-a-replica")
    tested = replace(ahead, metadata_version=NEWEST_METADATA_VERSION)
    assert outcome(ruled(directory("moved", MOVED), tested)) == ("orphan", "not-a-replica")
    assert ruled(directory("lives", LIVES), tested).last_copy is False


@pytest.mark.parametrize(
    ("isr", "elr", "leader", "last_copy"),
    [
        ((1, 2), (), 2, False),
        ((2,), (1,), 2, False),
        ((2,), (1,), -1, True),
        ((2,), (1, 2), -1, True),
        ((), (1, 2), -1, True),
        ((), (2,), -1, None),
        ((1,), (), -1, True),
    ],
)
def test_an_eligible_replica_of_a_partition_without_a_leader_is_not_taken_for_covered(
    isr: tuple[int, ...], elr: tuple[int, ...], leader: int, last_copy: bool | None
) -> None:
    """KIP-966: it may be the next leader, so its records are what the others will be truncated to."""
    partition = PartitionAssignment((1, 2), isr, leader=leader, elr=elr)
    live = {n: BrokerRegistration(n, fenced=False) for n in (1, 2)}
    ruling = ruled(directory("lives", LIVES), image(topics=[Topic("lives", LIVES, {0: partition})], brokers=live))
    assert outcome(ruling) == ASSIGNED and ruling.last_copy is last_copy
    assert (Claim.OTHERS_IN_SYNC in {held.claim for held in ruling.proof}) == (last_copy is False)


def test_a_complete_image_without_topics_proves_nothing() -> None:
    """A cluster whose metadata was lost registers its brokers anew: every directory would be an orphan."""
    empty = image(topics=[], brokers={1: BrokerRegistration(1)})
    assert outcome(ruled(directory("gone", GONE), empty)) == ("unknown", "no-assignments")


def test_two_unknown_cluster_ids_are_not_the_same_cluster() -> None:
    nameless = Host(node_id=1, cluster_id=None, max_age_ms=MAX_AGE)
    assert outcome(ruled(directory("gone", GONE), image(cluster_id=None), nameless)) == ("unknown", "foreign-cluster")


def young(topic: str = "gone", topic_id: str = GONE, at_ms: int = NOW - 100) -> PartitionDir:
    return directory(topic, topic_id, ctime_ns=at_ms * 1_000_000, mtime_ns=at_ms * 1_000_000)


def test_what_the_metadata_log_may_lack_is_said_with_the_time_until_which_it_knows() -> None:
    rolled_back = image(known_until_ms=NOW - 20_100)
    found = ruled(young(), rolled_back)
    assert outcome(found) == ("unknown", "stale-assignments")
    assert found.detail is not None and "20 s younger" in found.detail and "complete until 2027-" in found.detail
    uncommitted = ruled(young(), image(known_until_ms=0))
    assert uncommitted.detail is not None and "nothing in" in uncommitted.detail


HERE_AND_THERE = [
    Topic("gone", GONE, {0: PartitionAssignment((1,))}),
    Topic("moved", MOVED, {0: PartitionAssignment((1, 2))}),
]


@pytest.mark.parametrize(
    ("topic", "topic_id", "topics", "says"),
    [
        ("gone", GONE, HERE_AND_THERE, "the topic id exists"),
        ("again", GONE, HERE_AND_THERE, "the topic id exists"),
        ("moved", MOVED, HERE_AND_THERE, "this node (1) is among the replicas"),
        # It says the same, or nothing about it.
        ("moved", MOVED, [Topic("moved", MOVED, {0: PartitionAssignment((2, 3))})], None),
        ("moved", MOVED, [Topic("moved", MOVED, {1: PartitionAssignment((1,))})], None),
        ("gone", GONE, [Topic("gone", NEW, {0: PartitionAssignment((1,))})], None),
        ("gone", GONE, [Topic("gone", None, {0: PartitionAssignment((1,))})], None),
    ],
)
def test_a_source_that_proves_nothing_contradicts_with_what_it_has(
    topic: str, topic_id: str, topics: list[Topic], says: str | None
) -> None:
    proof, doubted = image(), image(topics=topics, source=Source.ADMIN, complete=False, at_ms=NOW, origin="node 7")
    proven = ruled(directory(topic, topic_id), proof)
    found = contradict(directory(topic, topic_id), proven, HOST, proof=[proof], doubted=[doubted], now_ms=NOW)
    if says is None:
        assert found == proven
    else:
        assert outcome(found) == ("unknown", "sources-disagree")
        assert found.detail is not None and says in found.detail and "admin: node 7" in found.detail


@pytest.mark.parametrize(
    ("proof_at", "proof_until", "said_at", "contradicts"),
    [
        (NOW - 500, NOW - 500, NOW, True),
        (NOW - 500, NOW - 500, NOW - 500, True),
        # An old file, and one that is older than what is committed.
        (NOW - 500, NOW, NOW - 501, False),
        (NOW - 500, NOW - 60_000, NOW - 59_000, True),
        (NOW - 500, NOW - 60_000, NOW - 60_001, False),
        # A controller's clock that is ahead does not make the proof younger than now.
        (NOW + 30_000, NOW + 30_000, NOW, True),
    ],
)
def test_only_facts_younger_than_the_proof_contradict_it(
    proof_at: int, proof_until: int, said_at: int, contradicts: bool
) -> None:
    proof = image(at_ms=proof_at, known_until_ms=proof_until)
    proven = Ruling(Verdict.ORPHAN, VerdictReason.TOPIC_ABSENT, "no topic has the id")
    doubted = image(topics=HERE_AND_THERE, at_ms=said_at, known_until_ms=0)
    found = contradict(directory("gone", GONE), proven, HOST, proof=[proof], doubted=[doubted], now_ms=NOW)
    assert (found.verdict is Verdict.UNKNOWN) is contradicts
    # The newest proof counts: one that is older cannot make what has passed since a contradiction.
    both = [image(at_ms=said_at - 1, known_until_ms=said_at - 1), proof]
    again = contradict(directory("gone", GONE), proven, HOST, proof=both, doubted=[doubted], now_ms=NOW)
    assert outcome(again) == outcome(found)


def test_what_is_no_orphan_stays_what_it_is() -> None:
    doubted = image(topics=HERE_AND_THERE, at_ms=NOW)
    for name, topic_id in (("lives", LIVES), ("moving", MOVING)):
        proven = ruled(directory(name, topic_id), image())
        one = directory(name, topic_id)
        assert contradict(one, proven, HOST, proof=[image()], doubted=[doubted], now_ms=NOW) == proven


@pytest.mark.parametrize(
    ("topic", "topic_id", "changes", "absent", "proof"),
    [
        ("gone", GONE, {}, None, Held(Claim.TOPIC_ABSENT, Witness.KRAFT_LOG, NOW - 900)),
        ("gone", GONE, {}, {NEW}, Held(Claim.TOPIC_ABSENT, Witness.KRAFT_LOG, NOW - 900)),
        ("gone", GONE, {}, {GONE}, Held(Claim.TOPIC_ABSENT, Witness.ADMIN, NOW - 900)),
        ("gone", GONE, {"gone_ids": frozenset({GONE})}, None, Held(Claim.TOPIC_ABSENT, Witness.KRAFT_LOG, NOW - 900)),
        ("gone", GONE, {"gone_ids": frozenset()}, None, Held(Claim.TOPIC_ABSENT, Witness.NEVER_SHOWN, NOW - 900)),
        ("moved", MOVED, {}, None, Held(Claim.NOT_A_REPLICA, Witness.KRAFT_LOG, NOW - 500)),
    ],
)
def test_a_removal_is_proven_as_of_when_the_image_is_complete_and_what_can_change_as_of_its_time(
    topic: str, topic_id: str, changes: dict[str, Any], absent: set[str] | None, proof: Held
) -> None:
    ruling = ruled(directory(topic, topic_id), image(known_until_ms=NOW - 900, **changes), absent_by_id=absent)
    assert ruling.proof == (proof,)
