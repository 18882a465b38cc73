"""May a stray go? Asked before it is removed or marked for deletion; the decision, without I/O.

A stray was an orphan when it was set aside, by us or by a broker. Since then its topic id may be found living after
all, a reassignment may have come back, and the copy that was thought to be elsewhere may be gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from logagent.model.assignments.covered import EpochEnd, LogLook, covers, why_not_covered
from logagent.model.assignments.image import AssignmentImage
from logagent.model.assignments.reasons import Reason
from logagent.model.facts import Ruling, StrayRuling
from logagent.model.records import Kind, PartitionDir, Verdict

GONE_FOR_GOOD = frozenset({Reason.TOPIC_ABSENT, Reason.TOPIC_RECREATED})
"""What was proven once stays true: a topic id is never given again. `not-a-replica` a reassignment makes false."""

SILENT = frozenset({Reason.NO_ASSIGNMENTS, Reason.STALE_ASSIGNMENTS})
"""Why nothing is known now. Every other unknown says that its topic may live, or speaks of another cluster."""


def as_it_was(stray: PartitionDir, full_topic: str | None, image: AssignmentImage | None) -> PartitionDir:
    """The stray as the current directory that it was, for `verdict.decide`.

    Its name may have lost the end of the topic: then it is the journal's, else the living topic's of its id, if that
    begins alike.
    """
    topic = full_topic or stray.topic
    if full_topic is None and stray.truncated and image is not None and stray.topic_id is not None:
        living = image.by_id.get(stray.topic_id)
        if living is not None and stray.topic is not None and living.name.startswith(stray.topic):
            topic = living.name
    return replace(stray, kind=Kind.CURRENT, topic=topic)


def lives_here(ruling: Ruling) -> bool:
    """Whether this node is a replica of the stray's topic id and partition: then it must be covered to go."""
    return ruling.verdict is Verdict.ASSIGNED or ruling.reason == Reason.WRONG_DIRECTORY


def has_live_isr(stray: PartitionDir, image: AssignmentImage, node_id: int | None) -> bool:
    """Whether the ISR of its partition has a member other than this node that is known not to be fenced."""
    if stray.topic_id is None or stray.partition is None:
        return False
    partition = image.partition(stray.topic_id, stray.partition)
    if partition is None:
        return False
    members = (image.brokers.get(node) for node in partition.isr if node != node_id)
    return any(broker is not None and broker.fenced is False for broker in members)


def contradicted(
    stray: PartitionDir, set_aside_ms: int, usable: Sequence[AssignmentImage], unusable: Sequence[AssignmentImage]
) -> bool:
    """Whether its topic id lives by an image that may be used, or by one as young as the stray's name: then whatever
    proved then that the id was gone did not."""
    images = (*usable, *(image for image in unusable if image.at_ms >= set_aside_ms))
    return any(stray.topic_id in image.by_id for image in images)


def decide_stray(
    ruling: Ruling, *, proof: str | None, own: LogLook | None, answers: Sequence[EpochEnd], live_isr: bool
) -> StrayRuling:
    """`ruling` is the verdict on it as the directory that it was; `proof` is why it was an orphan when we set it aside,
    by the journal, unless `contradicted`; `own` is its log, `answers` where others end its last leader epoch,
    `live_isr` is `has_live_isr`.
    """
    said = ruling.reason or ruling.verdict.value
    if ruling.detail:
        said += f": {ruling.detail}"
    if lives_here(ruling):
        if own is not None and any(covers(answer, own) for answer in answers):
            return StrayRuling(True, f"{said}; another copy has all of it")
        why = why_not_covered(own, tuple(answers)) if own is not None else "its own log was not read"
        return StrayRuling(False, f"its partition is assigned to this node, and no copy is known to cover it: {why}")
    if ruling.verdict is Verdict.ORPHAN:
        if ruling.reason in GONE_FOR_GOOD:
            return StrayRuling(True, said)
        if live_isr:
            return StrayRuling(True, said)
        return StrayRuling(False, f"{said}; but no live member is known in its ISR")
    if proof in GONE_FOR_GOOD and ruling.reason in SILENT:
        return StrayRuling(True, f"{proof} when it was set aside (journal); now {said}")
    return StrayRuling(False, f"whose it is cannot be told now ({said})")
