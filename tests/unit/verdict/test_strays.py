"""Whether a stray may go."""

from __future__ import annotations

from dataclasses import replace

import pytest

from logagent.base.dir_names import stray_name
from logagent.base.records import Kind, Verdict
from logagent.kafka.extents import EpochEnd, LogExtent
from logagent.kafka.image import AssignmentImage, PartitionAssignment, Source, Topic, make_image
from logagent.verdict.copies import before_stray, contradicted, decide_stray, needs_cover, stray_verdict
from logagent.verdict.facts import Ruling
from tests.hosts import HEX, TOPIC_ID, directory

OWN = LogExtent(0, 100, ((0, 0),))
COVERS = EpochEnd("the leader", 0, 100, 0, high_watermark=100)
SHORTER = EpochEnd("the leader", 0, 99, 0, high_watermark=99)
ASSIGNED = Ruling(Verdict.ASSIGNED)
WRONG_DIRECTORY = Ruling(Verdict.UNKNOWN, "wrong-directory", "elsewhere")
ABSENT, RECREATED = Ruling(Verdict.ORPHAN, "topic-absent"), Ruling(Verdict.ORPHAN, "topic-recreated")
MOVED = Ruling(Verdict.ORPHAN, "not-a-replica")
STALE = Ruling(Verdict.UNKNOWN, "stale-assignments")


EMPTY = LogExtent(0, 0)


@pytest.mark.parametrize(
    ("ruling", "proof", "own", "answers", "goes"),
    [
        (ABSENT, None, None, (), True),
        (RECREATED, None, None, (), True),
        # The topic lives elsewhere: its leader must have all of it, however many members its ISR has.
        (MOVED, None, None, (), False),
        (MOVED, None, OWN, (), False),
        (MOVED, None, OWN, (SHORTER,), False),
        (MOVED, None, OWN, (COVERS,), True),
        (MOVED, None, EMPTY, (), True),
        (MOVED, None, replace(EMPTY, problem="torn"), (), False),
        (MOVED, None, LogExtent(0, None, (), "torn"), (COVERS,), False),
        (MOVED, "topic-absent", OWN, (), False),
        (ASSIGNED, None, EMPTY, (), False),
        (ASSIGNED, None, OWN, (COVERS,), True),
        (ASSIGNED, None, OWN, (SHORTER, COVERS), True),
        (ASSIGNED, None, OWN, (SHORTER,), False),
        (ASSIGNED, None, OWN, (), False),
        (ASSIGNED, None, None, (COVERS,), False),
        (ASSIGNED, None, LogExtent(0, None, ((0, 0),), "torn"), (COVERS,), False),
        (ASSIGNED, "topic-absent", OWN, (), False),  # it lives: what once was said does not count
        (WRONG_DIRECTORY, None, OWN, (SHORTER,), False),
        (WRONG_DIRECTORY, None, OWN, (COVERS,), True),
        (STALE, None, OWN, (COVERS,), False),
        (STALE, "topic-absent", None, (), True),
        (STALE, "topic-recreated", None, (), True),
        (STALE, "not-a-replica", None, (), False),
        (STALE, None, None, (), False),
        (Ruling(Verdict.UNKNOWN, "no-assignments"), "topic-absent", None, (), True),
        (Ruling(Verdict.UNKNOWN, "sources-disagree"), "topic-absent", None, (), False),
        (Ruling(Verdict.UNKNOWN, "uncommitted"), "topic-absent", None, (), False),
        (Ruling(Verdict.UNKNOWN, "reassigning"), "topic-recreated", None, (), False),
        (Ruling(Verdict.UNKNOWN, "foreign-cluster"), "topic-absent", None, (), False),
    ],
)
def test_what_may_go(
    ruling: Ruling, proof: str | None, own: LogExtent | None, answers: tuple[EpochEnd, ...], goes: bool
) -> None:
    decided = decide_stray(ruling, proof=proof, own=own, answers=answers, nobody="set it")
    assert decided.may_go is goes
    assert decided.why.fact
    assert decided.why.hint == ("" if goes or not needs_cover(ruling) else "set it")


@pytest.mark.parametrize(
    ("ruling", "whose"), [(ASSIGNED, "its partition is assigned to this node"), (MOVED, "not-a-replica")]
)
def test_what_stays_is_said_to_be_assigned_here_or_elsewhere(ruling: Ruling, whose: str) -> None:
    decided = decide_stray(ruling, proof=None, own=OWN, answers=(SHORTER,))
    assert decided.why.fact.startswith(f"{whose}, and no copy is known to cover it: ")
    assert decided.covered == "no"
    for own, answers in ((OWN, ()), (None, (COVERS,))):
        assert decide_stray(ruling, proof=None, own=own, answers=answers).covered == "unknown"


def test_a_name_that_was_cut_is_the_living_topics_of_its_id() -> None:
    long = "t" * 249
    stray = directory(stray_name(long, 0, HEX))
    assert stray.truncated and stray.topic != long
    topic = Topic(long, TOPIC_ID, {0: PartitionAssignment((1,))})
    image = make_image(
        [topic],
        AssignmentImage(
            source=Source.KRAFT_LOG, cluster_id="c", at_ms=0, known_until_ms=0, complete=True, metadata_version=21
        ),
    )
    was = before_stray(stray, None, image)
    assert (was.kind, was.topic) == (Kind.CURRENT, long)
    assert before_stray(stray, "from-the-journal", image).topic == "from-the-journal"
    assert before_stray(replace(stray, topic_id="other"), None, image).topic == stray.topic


def test_a_proof_does_not_count_against_an_image_in_which_the_topic_lives() -> None:
    stray = directory(stray_name("orders", 0, HEX))

    def image(at_ms: int, topic_id: str = TOPIC_ID) -> AssignmentImage:
        topic = Topic("orders", topic_id, {0: PartitionAssignment((2, 3))})
        return make_image(
            [topic], AssignmentImage(source=Source.FILE, cluster_id="c", at_ms=at_ms, known_until_ms=0, complete=True)
        )

    set_aside_ms = 1_000
    assert contradicted(stray, set_aside_ms, [image(999)], [])
    assert contradicted(stray, set_aside_ms, [], [image(1_000)])
    assert not contradicted(stray, set_aside_ms, [], [image(999)])
    other = image(2_000, "OtherOtherOtherOtherOA")
    assert not contradicted(stray, set_aside_ms, [other], [other])


def test_a_proof_of_the_journal_decides_only_where_nothing_is_known_now() -> None:
    rests = stray_verdict(STALE, "topic-absent")
    assert (rests.verdict, rests.reason) == (Verdict.ORPHAN, "topic-absent")
    for ruling, proof in ((STALE, None), (STALE, "not-a-replica"), (MOVED, "topic-absent"), (ASSIGNED, "topic-absent")):
        assert stray_verdict(ruling, proof) is ruling
