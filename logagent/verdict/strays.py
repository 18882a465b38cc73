"""Whether a stray may be removed; checked before it is removed or marked for deletion. Decides without I/O.

A stray was an orphan when we or a broker set it aside. Since then, its topic id may have turned out to exist after all,
a reassignment may have been reverted, and the copy that was thought to be elsewhere may be gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from logagent.base.claims import Claim, Held, Witness
from logagent.base.records import Kind, PartitionDir, Verdict
from logagent.kafka.extents import EpochEnd, LogExtent
from logagent.kafka.image import AssignmentImage
from logagent.verdict.covered import covers, what_it_has, why_not_covered
from logagent.verdict.facts import Ruling, StrayRuling
from logagent.verdict.rules import GONE_FOR_GOOD, VerdictReason

SILENT = frozenset({VerdictReason.NO_ASSIGNMENTS, VerdictReason.STALE_ASSIGNMENTS})
"""Reasons that mean that nothing is known now. Any other unknown means that the topic may live, or that the assignments
are of another cluster."""


def before_stray(stray: PartitionDir, full_topic: str | None, image: AssignmentImage | None) -> PartitionDir:
    """The stray as the current directory that it was, for `verdict.decide`.

    If the end of the topic may have been cut off, take the full name from the journal, else from the living topic with
    its id if that name begins alike.
    """
    topic = full_topic or stray.topic
    if full_topic is None and stray.truncated and image is not None and stray.topic_id is not None:
        living = image.by_id.get(stray.topic_id)
        if living is not None and stray.topic is not None and living.name.startswith(stray.topic):
            topic = living.name
    return replace(stray, kind=Kind.CURRENT, topic=topic)


def is_assigned_here(ruling: Ruling) -> bool:
    """Whether this node is a replica of the stray's topic id and partition: then it is removed only if covered."""
    return ruling.verdict is Verdict.ASSIGNED or ruling.reason == VerdictReason.WRONG_DIRECTORY


def needs_cover(ruling: Ruling) -> bool:
    """Whether a directory with this verdict goes only if another copy has all of it: its topic id lives.

    Where this node is no replica, a living ISR is not enough: after an unclean election followed by a reassignment, all
    of its members can have none of these records.
    """
    return is_assigned_here(ruling) or (ruling.verdict is Verdict.ORPHAN and ruling.reason not in GONE_FOR_GOOD)


def rests_on(proof: str | None, ruling: Ruling) -> bool:
    """Whether the journal's proof decides, because nothing is known now."""
    return proof in GONE_FOR_GOOD and ruling.verdict is Verdict.UNKNOWN and ruling.reason in SILENT


def stray_verdict(ruling: Ruling, proof: str | None) -> Ruling:
    """The verdict on a stray, as `scan` and plans show it: `ruling` and `proof` as for `decide_stray`."""
    if not rests_on(proof, ruling):
        return ruling
    detail = f"when it was set aside (journal); now {ruling.reason}: {ruling.detail}"
    return Ruling(Verdict.ORPHAN, proof, detail, ruling.last_copy)


def contradicted(
    stray: PartitionDir, set_aside_ms: int, usable: Sequence[AssignmentImage], unusable: Sequence[AssignmentImage]
) -> bool:
    """Whether its topic id exists in a usable image, or in one at least as recent as the stray's name: then the earlier
    proof that the id was gone is void."""
    images = (*usable, *(image for image in unusable if image.at_ms >= set_aside_ms))
    return any(stray.topic_id in image.by_id for image in images)


def decide_stray(
    ruling: Ruling,
    *,
    proof: str | None,
    own: LogExtent | None,
    answers: Sequence[EpochEnd],
    nobody: str | None = None,
    at_ms: int = 0,
    proof_ms: int = 0,
) -> StrayRuling:
    """Whether a stray may be removed, or a directory marked for deletion.

    `ruling`: the verdict on the directory as it was (`before_stray`). `proof`: according to the journal, why it was an
    orphan when we set it aside, unless `contradicted`. `own`: its log. `answers`: where its last leader epoch ends in
    other copies, as of `at_ms`. `nobody`: why no leader could be asked, with what to do about it. `proof_ms`: when
    `proof` was noted.
    """
    reason = ruling.reason or ruling.verdict.value
    if ruling.detail:
        reason += f": {ruling.detail}"
    if needs_cover(ruling):
        return _decide_by_cover(ruling, reason, own, answers, nobody, at_ms)
    if ruling.verdict is Verdict.ORPHAN:
        return StrayRuling(True, reason, proof=ruling.proof)
    if proof is not None and rests_on(proof, ruling):
        noted = tuple(
            Held(claim, Witness.JOURNAL, proof_ms) for claim in (Claim(proof), Claim.OUR_LINEAGE, Claim.IN_THIS_MODE)
        )
        agreed = Held(Claim.NOT_CONTRADICTED, Witness.EVERY_SOURCE, at_ms)
        fact = f"{proof} when it was set aside (journal); now {reason}"
        return StrayRuling(True, fact, proof=(*noted, agreed))
    return StrayRuling(False, f"its owner is unknown now ({reason})")


def _decide_by_cover(
    ruling: Ruling,
    reason: str,
    own: LogExtent | None,
    answers: Sequence[EpochEnd],
    nobody: str | None,
    at_ms: int,
) -> StrayRuling:
    """It may go only if another copy has all its records, or if it has none."""
    here = is_assigned_here(ruling)
    if not here and own is not None and own.has_no_records:
        covered_by = Held(Claim.COVERED, Witness.NO_RECORDS, at_ms)
        return StrayRuling(True, f"{reason}; it has no records", "yes", proof=(*ruling.proof, covered_by))
    covering = next((answer for answer in answers if own is not None and covers(answer, own)), None)
    if own is not None and covering is not None:
        covered_by = Held(Claim.COVERED, Witness.LED_HERE if covering.here else Witness.LEADER, at_ms)
        fact = f"{reason}; {what_it_has(covering, own)}"
        return StrayRuling(True, fact, "yes", proof=(*ruling.proof, covered_by))
    why = why_not_covered(own, tuple(answers)) if own is not None else "its own log was not read"
    whose = "its partition is assigned to this node" if here else reason
    covered: Literal["no", "unknown"] = "no" if own is not None and answers else "unknown"
    fact = f"{whose}, and no copy is known to cover it: {why}"
    return StrayRuling(False, fact, covered, nobody, proof=ruling.proof)
