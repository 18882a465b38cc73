"""What the decision on one directory may never do, whatever the directory and the image are.

Hypothesis draws the cases through its own `Random` (and shrinks what fails); a plain seeded one draws many more and
counts, so that it is known that every verdict is reached and no property holds for want of cases.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from logagent.base.records import Kind, PartitionDir, Verdict
from logagent.kafka.image import RESERVED_DIRECTORY_IDS, AssignmentImage, PartitionAssignment, Source, Topic, make_image
from logagent.verdict.facts import Ruling
from logagent.verdict.rules import CLOCK_TOLERANCE_MS, Host, VerdictReason, combine, decide
from tests.metadata_writer import id_of

ORPHAN_REASONS = frozenset(
    {VerdictReason.TOPIC_ABSENT, VerdictReason.TOPIC_RECREATED, VerdictReason.NOT_A_REPLICA, VerdictReason.COPY_OF}
)
NOW = 1_800_000_000_000
MAX_AGE = 900_000
HERE = id_of(901)
DIRECTORY_IDS = [HERE, id_of(902), sorted(RESERVED_DIRECTORY_IDS)[0]]
NAMES = ["a", "b", "__consumer_offsets"]
TOPIC_IDS = [id_of(n) for n in range(4)]
CASES = 10_000


@dataclass
class Case:
    directory: PartitionDir
    image: AssignmentImage
    absent: frozenset[str] | None
    directory_id: str | None

    def ruled(self, image: AssignmentImage | None = None, absent: frozenset[str] | None = None) -> Ruling:
        ruling = decide(
            self.directory,
            image or self.image,
            Host(1, "ours", MAX_AGE),
            now_ms=NOW,
            directory_id=self.directory_id,
            absent_by_id=self.absent if image is None else absent,
        )
        assert ruling is not None
        return ruling


def some(rng: Random, of: list[str], most: int) -> list[str]:
    return rng.sample(of, rng.randint(0, most))


def a_time(rng: Random) -> int:
    """Mostly a usable one: an image that cannot be used at all says little about the rest of the decision."""
    if rng.random() < 0.1:
        return rng.randint(NOW - 2 * MAX_AGE, NOW + 2 * CLOCK_TOLERANCE_MS)
    return rng.randint(NOW - 2000, NOW)


def a_partition(rng: Random) -> PartitionAssignment:
    replicas = tuple(rng.sample(range(1, 5), rng.randint(0, 3)))
    moving = tuple(rng.sample(range(1, 5), 1)) if rng.random() < 0.2 else ()
    directories = tuple(rng.choice(DIRECTORY_IDS) for _ in replicas) if rng.random() < 0.7 else ()
    return PartitionAssignment(replicas, replicas[:2], moving, (), directories)


def an_image(rng: Random) -> AssignmentImage:
    topic_ids = rng.sample(TOPIC_IDS, len(TOPIC_IDS))
    topics = [
        Topic(
            name,
            None if rng.random() < 0.1 else topic_id,
            {number: a_partition(rng) for number in range(rng.randint(1, 2))},
        )
        for name, topic_id in zip(rng.sample(NAMES, rng.choice([0, *[2, 3] * 8])), topic_ids, strict=False)
    ]
    uncommitted: list[str | tuple[str, int]] = []
    if rng.random() < 0.3:
        uncommitted = [rng.choice(TOPIC_IDS), (rng.choice(TOPIC_IDS), rng.randint(0, 1))]
    return make_image(
        topics,
        AssignmentImage(
            source=Source.ADMIN,
            cluster_id=rng.choice([*["ours"] * 12, "theirs", None]),
            at_ms=a_time(rng),
            known_until_ms=NOW if rng.random() < 0.7 else a_time(rng),
            complete=rng.random() < 0.5,
            uncommitted=frozenset(uncommitted),
        ),
    )


def a_case(rng: Random) -> Case:
    name = rng.choice(NAMES)
    directory = PartitionDir(
        log_dir="/d1",
        name=name,
        kind=rng.choice([Kind.CURRENT, Kind.FUTURE]),
        topic=name,
        partition=rng.randint(0, 1),
        uuid=None,
        truncated=False,
        device=1,
        inode=2,
        ctime_ns=a_time(rng) * 1_000_000,
        mtime_ns=a_time(rng) * 1_000_000,
        topic_id=None if rng.random() < 0.1 else rng.choice(TOPIC_IDS),
    )
    absent = frozenset(some(rng, TOPIC_IDS, 4)) if rng.random() < 0.7 else None
    return Case(directory, an_image(rng), absent, rng.choice([HERE, None]))


def check_proof(case: Case) -> Ruling:
    """An orphan is proven: each fact that the proof needs is looked up here on its own."""
    found, one, image = case.ruled(), case.directory, case.image
    assert (found.verdict is Verdict.ORPHAN) == (found.reason in ORPHAN_REASONS)
    assert (found.verdict is Verdict.ASSIGNED) == (found.reason is None)
    partition = image.partition(one.topic_id or "", one.partition or 0)
    if found.verdict is Verdict.ASSIGNED:
        assert partition is not None and 1 in partition.replicas
    if found.verdict is not Verdict.ORPHAN:
        return found
    assert one.topic_id is not None and one.topic != "__consumer_offsets"
    assert image.cluster_id == "ours" and 1 in image.nodes
    assert -CLOCK_TOLERANCE_MS <= NOW - image.at_ms <= MAX_AGE
    assert min(one.ctime_ns, one.mtime_ns) // 1_000_000 <= image.known_until_ms
    settled = found.reason not in (VerdictReason.NOT_A_REPLICA, VerdictReason.COPY_OF) and one.topic_id in (
        case.absent or ()
    )
    assert settled or image.uncommitted.isdisjoint((one.topic_id, (one.topic_id, one.partition)))
    if found.reason == VerdictReason.COPY_OF:
        assert partition is not None and image.by_id[one.topic_id].name != one.topic
        assert image.complete and one.topic not in image.by_name and one.kind is Kind.CURRENT
    elif found.reason == VerdictReason.NOT_A_REPLICA:
        assert partition is not None and 1 not in partition.replicas and not partition.reassigning
        assert image.by_id[one.topic_id].name == one.topic
    else:
        assert one.topic_id not in image.by_id
        assert image.complete or (case.absent is not None and one.topic_id in case.absent)
        assert (found.reason == VerdictReason.TOPIC_RECREATED) == (one.topic in image.by_name)
    return found


def check_doubt(case: Case) -> None:
    """Less knowledge (less complete, younger directories, less committed, nothing asked) never makes an orphan."""
    before = case.ruled()
    if before.verdict is Verdict.ORPHAN:
        return
    image = case.image
    for worse in (
        replace(image, complete=False),
        replace(image, known_until_ms=image.known_until_ms - 1000),
        replace(image, uncommitted=image.uncommitted | {TOPIC_IDS[0], (TOPIC_IDS[1], 0)}),
        replace(image, cluster_id=None),
    ):
        assert case.ruled(worse, case.absent).verdict is not Verdict.ORPHAN
        assert case.ruled(worse, None).verdict is not Verdict.ORPHAN
        assert combine(before, case.ruled(worse, case.absent)).verdict is not Verdict.ORPHAN


@settings(deadline=None)
@given(st.randoms(use_true_random=False))
def test_an_orphan_is_proven(rng: Random) -> None:
    check_proof(a_case(rng))


@settings(deadline=None)
@given(st.randoms(use_true_random=False))
def test_doubt_never_makes_an_orphan(rng: Random) -> None:
    check_doubt(a_case(rng))


def test_many_cases_reach_every_verdict() -> None:
    rng, seen = Random(5), Counter[str | None]()
    for _ in range(CASES):
        case = a_case(rng)
        seen[check_proof(case).reason] += 1
        check_doubt(case)
    assert min(seen[reason] for reason in (None, *VerdictReason)) >= 15, seen
