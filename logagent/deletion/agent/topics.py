"""What follows from the decision to delete a topic: which strays go in report mode too, and what is answered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from logagent.base.records import ActionKind, DirKey, Kind, PartitionDir
from logagent.base.sizes import LARGEST_COUNT
from logagent.base.times import rfc3339
from logagent.cleanup.plan.assemble import BlastRadius, within_limits
from logagent.cleanup.plan.plan import Plan, Proposal
from logagent.cleanup.session.session import Session
from logagent.deletion.agent.memory import RequestMemory, Word
from logagent.deletion.store.answers import TopicAnswer, as_words
from logagent.deletion.store.requests import Filed
from logagent.verdict.facts import Facts
from logagent.verdict.marks import Mark

_GONE = (Kind.STRAY, Kind.DELETE)


def removals_by_request(
    plan: Plan, memory: RequestMemory, marks: Mapping[DirKey, Mark], facts: Facts, limits: BlastRadius
) -> list[Proposal]:
    """The due removals of a plan that requests of the fleet have asked for, as many as the limits of a day allow.

    What a request quarantined goes under the name that it got then, like anything that is quarantined. A stray of a
    topic that a request decided to delete goes only if this host itself has proof that the topic is deleted: another
    copy that covers it is none.
    """
    words = memory.may_go()
    chosen: list[Proposal] = []
    for p in plan.actions:
        if p.action is not ActionKind.REMOVE:
            continue
        mark, word = marks.get(p.key), words.get(p.dir.topic_id or "")
        if mark is not None and mark.request is not None and memory.counts(mark.request):
            chosen.append(p)
        elif word is not None and p.dir.kind is Kind.STRAY:
            chosen.append(replace(p, approved=p.approved or word.limit, flags=replace(p.flags, only_deleted=True)))
    may_join = within_limits([], facts, limits)
    return [p for p in chosen if may_join(p)]


@dataclass(frozen=True, slots=True)
class Left:
    """What an inventory shows of one topic id. `hidden`: what was not looked at, in words. `unread`: what is known of
    each directory under the topic's name whose topic id is not: it may be a replica of any topic that had the name."""

    dirs: tuple[PartitionDir, ...]
    hidden: str | None
    freed: int
    unread: tuple[str, ...] = ()


def topic_answers(
    memory: RequestMemory, filed: Mapping[str, Filed], session: Session, facts: Facts, plan: Plan | None
) -> dict[str, tuple[TopicAnswer, ...]]:
    """By request that decided to delete topics: what this host has of each. Raises JournalError."""
    wanted = {
        number: [(t.topic_id, t.topic) for t in f.request.topics]
        for number, f in filed.items()
        if f.request is not None and f.decision is not None and f.decision.decision == "delete"
    }
    found: dict[str, list[PartitionDir]] = {topic_id: [] for ids in wanted.values() for topic_id, _ in ids}
    if not found:
        return {}
    for d in session.dirs:
        if d.topic_id in found:
            found[d.topic_id].append(d)
    freed = session.journal.removed_bytes(found)
    unseen = facts.not_seen()
    hidden = unseen.fact if unseen is not None else None if session.whole else "not every directory was looked at"
    words, unread = memory.may_go(), _unread(session.dirs)
    return {
        number: tuple(
            answer_of(
                topic_id,
                Left(tuple(found[topic_id]), hidden, freed.get(topic_id, 0), tuple(unread.get(topic, ()))),
                words.get(topic_id),
                _why_no_word(memory, number, topic_id, accept=session.settings.orders.accept),
                plan,
            )
            for topic_id, topic in ids
        )
        for number, ids in wanted.items()
    }


def _unread(dirs: Iterable[PartitionDir]) -> dict[str, list[str]]:
    """By topic name, `Left.unread`."""
    found: dict[str, list[str]] = {}
    for d in dirs:
        if d.topic_id is None and d.topic is not None and d.kind in (Kind.CURRENT, Kind.FUTURE):
            why = d.error or "it has no partition.metadata"
            found.setdefault(d.topic, []).append(f"the topic id of {d.log_dir}/{d.name} cannot be read: {why}")
    return found


def _why_no_word(memory: RequestMemory, number: str, topic_id: str, *, accept: bool) -> str:
    if not accept:
        return "requests are not accepted here (orders.accept)"
    if number in memory.held:
        return "nobody may act on the request now"
    mine = [w for w in memory.words if (w.request_id, w.topic_id) == (number, topic_id)]
    if not mine:
        return "this agent's memory is newer than the request: it removes strays by its own rules only"
    return mine[0].ended


def answer_of(topic_id: str, left: Left, word: Word | None, why_no_word: str, plan: Plan | None) -> TopicAnswer:
    live = [d for d in left.dirs if d.kind not in _GONE]
    gone = [d for d in left.dirs if d.kind in _GONE]
    words, next_try = "; ".join(filter(None, (left.hidden, *left.unread[:1]))), None
    if live and not words:
        words = "the broker removes or renames what it still has under its own name, once it runs"
    if gone and (word is None or why_no_word):
        words = "; ".join(filter(None, (words, why_no_word)))
    elif gone and plan is not None:
        why, next_try = _why_left(gone, plan)
        words = "; ".join(filter(None, (words, why)))
    size = sum(d.allocated for d in left.dirs)
    seen_all = left.hidden is None and not left.unread
    return TopicAnswer(
        topic_id, len(live) if seen_all else None, len(gone), min(size, LARGEST_COUNT),
        min(left.freed, LARGEST_COUNT), as_words(words), next_try, len(left.unread),
    )  # fmt: skip


def _why_left(dirs: Iterable[PartitionDir], plan: Plan) -> tuple[str, str | None]:
    """What the plan for the host says of these strays: the first refusal, else the first that falls due."""
    keys = {d.key for d in dirs}
    refusal = next((r for r in plan.refusals if r.key in keys), None)
    if refusal is not None:
        return f"{refusal.guard}: {refusal.fact} ({refusal.hint})", None
    waiting = [w for w in plan.waiting if w.key in keys]
    until = min((w.until_ms for w in waiting if w.until_ms is not None), default=None)
    if until is not None:
        return f"{waiting[0].reason}: kept until {rfc3339(until)}", rfc3339(until)
    return (waiting[0].reason, None) if waiting else ("", None)
