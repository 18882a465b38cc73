"""What the decision on one directory may never do, whatever the directory and the image are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from logagent.model.facts import Ruling
from logagent.model.reasons import ORPHAN_REASONS, Reason
from logagent.model.records import Kind, PartitionDir, Verdict
from logagent.model.topics import (
    RESERVED_DIRECTORY_IDS,
    AssignmentImage,
    PartitionAssignment,
    Source,
    Topic,
    make_image,
)
from logagent.model.verdict import CLOCK_TOLERANCE_MS, Host, combine, decide
from tests.metadata_writer import id_of

NOW = 1_800_000_000_000
MAX_AGE = 900_000
HERE, ELSEWHERE = id_of(901), id_of(902)


def ruled(one: PartitionDir, image: AssignmentImage, **more: Any) -> Ruling:
    ruling = decide(one, image, Host(1, "ours", MAX_AGE), **{"now_ms": NOW, "directory_id": HERE, **more})
    assert ruling is not None
    return ruling


NAMES = st.sampled_from(["a", "b", "__consumer_offsets"])
TOPIC_IDS = st.sampled_from([id_of(n) for n in range(4)])
NODES = st.lists(st.integers(0, 3), max_size=3, unique=True).map(tuple)
DIRECTORY_IDS = st.sampled_from([HERE, ELSEWHERE, sorted(RESERVED_DIRECTORY_IDS)[0]])
TIMES = st.integers(NOW - 2 * MAX_AGE, NOW + 2 * CLOCK_TOLERANCE_MS)


@st.composite
def assignments(draw: st.DrawFn) -> PartitionAssignment:
    replicas = draw(NODES)
    directories = draw(st.lists(DIRECTORY_IDS, min_size=len(replicas), max_size=len(replicas)))
    return PartitionAssignment(
        replicas, draw(NODES), draw(NODES), draw(NODES), tuple(draw(st.sampled_from([directories, ()])))
    )


@st.composite
def images(draw: st.DrawFn) -> AssignmentImage:
    names = draw(st.lists(NAMES, unique=True))
    topic_ids = draw(st.lists(TOPIC_IDS, unique=True, min_size=len(names), max_size=len(names)))
    partitions = st.dictionaries(st.integers(0, 1), assignments(), max_size=2)
    removed = st.one_of(TOPIC_IDS, st.tuples(TOPIC_IDS, st.integers(0, 1)))
    return make_image(
        [
            Topic(n, draw(st.sampled_from([i, i, i, None])), draw(partitions))
            for n, i in zip(names, topic_ids, strict=True)
        ],
        source=Source.ADMIN,
        cluster_id=draw(st.sampled_from(["ours", "ours", "ours", "theirs", None])),
        at_ms=draw(TIMES),
        known_until_ms=draw(TIMES),
        complete=draw(st.booleans()),
        uncommitted=draw(st.frozensets(removed, max_size=2)),
    )


@st.composite
def directories(draw: st.DrawFn) -> PartitionDir:
    topic = draw(NAMES)
    return PartitionDir(
        log_dir="/d1",
        name=topic,
        kind=draw(st.sampled_from([Kind.CURRENT, Kind.FUTURE])),
        topic=topic,
        partition=draw(st.integers(0, 1)),
        uuid=None,
        truncated=False,
        device=1,
        inode=2,
        ctime_ns=draw(TIMES) * 1_000_000,
        mtime_ns=draw(TIMES) * 1_000_000,
        topic_id=draw(st.one_of(st.none(), TOPIC_IDS)),
    )


@given(directories(), images(), st.one_of(st.none(), st.frozensets(TOPIC_IDS)), st.sampled_from([HERE, None]))
def test_an_orphan_is_proven(
    one: PartitionDir, from_image: AssignmentImage, absent: frozenset[str] | None, directory_id: str | None
) -> None:
    found = ruled(one, from_image, absent_by_id=absent, directory_id=directory_id)
    assert (found.verdict is Verdict.ORPHAN) == (found.reason in ORPHAN_REASONS)
    assert (found.verdict is Verdict.ASSIGNED) == (found.reason is None)
    partition = from_image.partition(one.topic_id or "", one.partition or 0)
    if found.verdict is Verdict.ASSIGNED:
        assert partition is not None and 1 in partition.replicas
    if found.verdict is not Verdict.ORPHAN:
        return
    assert one.topic_id is not None and one.topic != "__consumer_offsets"
    assert from_image.cluster_id == "ours" and 1 in from_image.nodes
    assert -CLOCK_TOLERANCE_MS <= NOW - from_image.at_ms <= MAX_AGE
    assert min(one.ctime_ns, one.mtime_ns) <= from_image.known_until_ms * 1_000_000
    assert one.topic_id not in from_image.uncommitted
    assert (one.topic_id, one.partition) not in from_image.uncommitted
    if found.reason == Reason.NOT_A_REPLICA:
        assert partition is not None and 1 not in partition.replicas and not partition.reassigning
        assert from_image.by_id[one.topic_id].name == one.topic
    else:
        assert one.topic_id not in from_image.by_id
        assert from_image.complete or (absent is not None and one.topic_id in absent)
        assert (found.reason == Reason.TOPIC_RECREATED) == (one.topic in from_image.by_name)


@given(directories(), images(), st.frozensets(TOPIC_IDS))
def test_doubt_never_makes_an_orphan(one: PartitionDir, from_image: AssignmentImage, absent: frozenset[str]) -> None:
    """Less knowledge (older, less complete, less committed, nothing asked) never turns another verdict into orphan."""
    before = ruled(one, from_image, absent_by_id=absent)
    if before.verdict is Verdict.ORPHAN:
        return
    for worse in (
        replace(from_image, complete=False),
        replace(from_image, known_until_ms=from_image.known_until_ms - 1000),
        replace(from_image, uncommitted=from_image.uncommitted | {id_of(0), (id_of(1), 0)}),
        replace(from_image, cluster_id=None),
    ):
        assert ruled(one, worse, absent_by_id=absent).verdict is not Verdict.ORPHAN
        assert ruled(one, worse, absent_by_id=None).verdict is not Verdict.ORPHAN
    assert combine(before, ruled(one, from_image)).verdict is not Verdict.ORPHAN
