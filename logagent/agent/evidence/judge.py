"""The verdicts on directories, from all usable sources of assignments together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from logagent.agent.evidence.answering import Absent
from logagent.agent.evidence.assignment_sources import Assignments
from logagent.agent.evidence.identify import absent_ids
from logagent.model.assignments.image import AssignmentImage
from logagent.model.assignments.verdict import Host, Reason, combine, contradict, decide
from logagent.model.facts import LogDirFacts, Ruling, Rulings
from logagent.model.records import Kind, PartitionDir, Verdict


def judge(
    dirs: Iterable[PartitionDir],
    assignments: Assignments,
    host: Host,
    log_dirs: Mapping[str, LogDirFacts],
    now_ms: int,
    *,
    proven_absent: frozenset[str] = frozenset(),
) -> Rulings:
    """The verdict on every current and future directory.

    The first usable source decides. If it says orphan, every other usable one must agree, and none that is not usable
    may contradict with something younger. The Admin API cannot prove
    absence by leaving a topic out, so a broker is asked by topic id (`answering.absent_ids`).
    """
    chosen = [d for d in dirs if d.kind in (Kind.CURRENT, Kind.FUTURE)]
    absent = absent_ids(chosen, assignments, host, now_ms, proven_absent)
    rulings = Rulings()
    # Most directories share a few rulings: 100,000 of them need one object per distinct ruling.
    shared: dict[Ruling, Ruling] = {}
    for d in chosen:
        where = log_dirs.get(d.log_dir)
        ruling = rule(d, assignments, host, absent, now_ms, where.directory_id if where is not None else None)
        if ruling is not None:
            rulings.add(d.log_dir, d.name, shared.setdefault(ruling, ruling))
    return rulings


def rule(
    d: PartitionDir,
    assignments: Assignments,
    host: Host,
    absent: Absent,
    now_ms: int,
    directory_id: str | None,
    *,
    internal: bool = False,
) -> Ruling | None:
    """The verdict of all usable sources together on one directory."""
    images: Sequence[AssignmentImage | None] = assignments.usable or assignments.unusable[:1] or [None]
    ids = absent.of(d)
    answers = [
        decide(d, image, host, now_ms=now_ms, directory_id=directory_id, absent_by_id=ids, internal=internal)
        for image in images
    ]
    ruling = answers[0]
    if ruling is not None and ruling.verdict is Verdict.ORPHAN:
        for other in answers[1:]:
            ruling = combine(ruling, other)
        ruling = contradict(d, ruling, host, proof=assignments.usable, doubted=assignments.doubted, now_ms=now_ms)
    if ruling is not None and ruling.verdict is not Verdict.UNKNOWN and not assignments.usable:
        # What is wrong with such a source need not be anything that `decide` looks at: a file that is of a clone.
        why = "; ".join(assignments.problems) or "no source of assignments is usable"
        return Ruling(Verdict.UNKNOWN, Reason.NO_ASSIGNMENTS, why)
    return ruling
