"""Possible actions, before any guard has checked them: on what was selected (delete) or is due (cleanup).

What an operator selects for `delete`: topic patterns as Kafka's tools read them, partitions, their directories.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from types import MappingProxyType

from logagent.errors import KafkaStorageError
from logagent.model.assignments.sightings import Sighting, of_directory
from logagent.model.assignments.strays import needs_cover
from logagent.model.facts import Facts
from logagent.model.naming import dir_names
from logagent.model.planning.assemble import RecentDirs
from logagent.model.planning.plan import Flags, Proposal, Waiting
from logagent.model.planning.queue import (
    Attempts,
    Corrected,
    Mark,
    QueueEntry,
    RemovalIntents,
    as_written,
    backoff_ms,
    full_topic,
    marked_at_ms,
    removal_begun,
)
from logagent.model.records import ActionKind, DirKey, Health, HolderState, Kind, PartitionDir, TopicPartition, Verdict

NewUuid = Callable[[], str]
_NO_FLAGS = Flags()
# Later than any clock: every wait is over by then.
WAITS_OVER_MS = 1 << 62


@dataclass(frozen=True, slots=True)
class Ages:
    """The sightings and the minimum age, in ms, that `cleanup.*` requires."""

    sightings: int
    min_age_ms: int


def rename_away(
    directory: PartitionDir,
    *,
    is_stray: bool,
    reason: str,
    new_uuid: NewUuid,
    quarantine_dir: str | None = None,
    flags: Flags = _NO_FLAGS,
    due_at_ms: int | None = None,
    sightings: int = 0,
) -> Proposal:
    """`asyncDelete` of one directory: to `-stray` (quarantine) or to `-delete` (mark), under a fresh random name."""
    build = dir_names.stray_name if is_stray else dir_names.delete_name
    topic, partition = directory.topic or "", directory.partition if directory.partition is not None else -1
    return Proposal(
        action=ActionKind.QUARANTINE if is_stray else ActionKind.MARK,
        dir=directory,
        reason=reason,
        new_name=build(topic, partition, new_uuid()),
        new_dir=quarantine_dir if is_stray else None,
        full_topic=directory.topic,
        due_at_ms=due_at_ms,
        sightings=sightings,
        flags=flags,
    )


def removals(queue: Sequence[QueueEntry], now_ms: int) -> tuple[list[Proposal], list[Waiting]]:
    """Marked directories: those that are due, oldest first, and those that wait."""
    proposals: list[Proposal] = []
    waiting: list[Waiting] = []
    for entry in queue:
        ready_at = max(entry.due_at_ms, entry.marked_at_ms)
        if ready_at <= now_ms:
            reason = "removal begun" if entry.removal_started else f"marked by {entry.owner}"
            proposals.append(
                Proposal(
                    ActionKind.REMOVE,
                    entry.dir,
                    reason,
                    full_topic=entry.full_topic,
                    due_at_ms=entry.due_at_ms,
                    approved=entry.approved,
                    removal_started=entry.removal_started,
                )
            )
        else:
            why = f"retry after: {entry.attempts.last_error}" if entry.attempts else "file.delete.delay.ms"
            waiting.append(_waits(entry.dir, ActionKind.REMOVE, why, ready_at))
    return proposals, waiting


def uncounted(proposals: Sequence[Proposal], facts: Facts) -> list[Proposal]:
    """The proposals that would add to the blast radius of the last 24 hours.

    The others were renamed by us within that time and counted then, so their removal adds nothing, however small the
    host is. A single directory is always allowed.
    """
    if len(proposals) == 1 and not facts.recent:
        return []
    taken = RecentDirs(facts.recent)
    return [p for p in proposals if not p.approved and taken.key(p.dir) not in taken.sizes]


def kept_while_offline(queue: Sequence[QueueEntry], facts: Facts) -> tuple[list[Waiting], list[QueueEntry]]:
    """Returns the removals that wait while a log dir is not seen (what the broker marked), and the rest of the queue.

    The source of a finished move between log dirs is marked; if the target has failed, it is the node's only readable
    copy. (A broker that starts purges it all the same.)
    """
    kept = [e for e in queue if e.owner == "broker" and not e.removal_started]
    hidden = facts.not_seen() if kept else None
    if hidden is None:
        return [], list(queue)
    why = f"{hidden.fact}: this may be the source of a move to it; {hidden.hint}"
    waiting = [_waits(e.dir, ActionKind.REMOVE, why, None) for e in kept]
    return waiting, [e for e in queue if e.owner != "broker" or e.removal_started]


def strays(
    found: Iterable[PartitionDir],
    marks: Mapping[DirKey, Mark],
    removal_intents: RemovalIntents,
    retention_ms: int,
    now_ms: int,
    failures: Mapping[DirKey, Attempts] = MappingProxyType({}),
    *,
    corrected: Corrected = as_written,
    flags: Flags = _NO_FLAGS,
) -> tuple[list[Proposal], list[Waiting]]:
    """Strays past their retention, and those that wait. For what the broker set aside, retention counts from the ctime.

    After a failed removal, a stray waits as long as a marked directory does.
    """
    proposals: list[Proposal] = []
    waiting: list[Waiting] = []
    for d in sorted(found, key=lambda d: (marked_at_ms(d, marks.get(d.key), corrected), d.log_dir, d.name)):
        key = d.key
        mark = marks.get(key)
        at = marked_at_ms(d, mark, corrected)
        begun = removal_begun(d, removal_intents)
        due_at = at if begun else at + retention_ms
        failed = failures.get(key)
        if failed is not None and due_at <= now_ms < failed.last_at_ms + backoff_ms(failed.count):
            until, why = failed.last_at_ms + backoff_ms(failed.count), f"retry after: {failed.last_error}"
            waiting.append(_waits(d, ActionKind.REMOVE, why, until))
        elif max(due_at, at) <= now_ms:
            proposals.append(
                Proposal(
                    ActionKind.REMOVE,
                    d,
                    "removal begun" if begun else "stray-retention",
                    full_topic=full_topic(d, mark),
                    due_at_ms=due_at,
                    approved=mark is not None and mark.approved,
                    removal_started=begun,
                    flags=flags,
                )
            )
        else:
            waiting.append(_waits(d, ActionKind.REMOVE, "stray-retention", max(due_at, at)))
    return proposals, waiting


def orphans(
    dirs: Iterable[PartitionDir],
    facts: Facts,
    sightings: Mapping[DirKey, Sighting],
    ages: Ages,
    new_uuid: NewUuid,
) -> tuple[list[Proposal], list[Waiting]]:
    """Proven orphans: those old enough and seen often enough are quarantined, the others wait."""
    proposals: list[Proposal] = []
    waiting: list[Waiting] = []
    for d in dirs:
        if d.kind not in (Kind.CURRENT, Kind.FUTURE):
            continue
        ruling = facts.ruling(d)
        if ruling.verdict is not Verdict.ORPHAN:
            continue
        seen = of_directory(sightings.get(d.key), d, ruling.reason or "", facts.now_ms)
        count = seen.count if seen is not None else 0
        until = seen.first_ms + ages.min_age_ms if seen is not None else facts.now_ms + ages.min_age_ms
        reason = ruling.reason or "orphan"
        if count < ages.sightings or until > facts.now_ms:
            why = f"{reason}: seen {count} of {ages.sightings} times"
            waiting.append(_waits(d, ActionKind.QUARANTINE, why, max(until, facts.now_ms), count))
        elif _broker_there(facts, d.log_dir):
            why = f"{reason}: waiting for the broker's next stop"
            waiting.append(_waits(d, ActionKind.QUARANTINE, why, None, count))
        else:
            proposals.append(
                rename_away(
                    d,
                    is_stray=True,
                    reason=reason,
                    new_uuid=new_uuid,
                    quarantine_dir=facts.quarantine_dirs.get(d.log_dir),
                    due_at_ms=until,
                    sightings=count,
                )
            )
    return proposals, waiting


def orphan_because(p: Proposal, facts: Facts) -> str | None:
    """Why the directory that `p` sets aside or marks is an orphan; None if it is not one (on request) or a stray."""
    if p.action not in (ActionKind.QUARANTINE, ActionKind.MARK) or p.dir.kind not in (Kind.CURRENT, Kind.FUTURE):
        return None
    ruling = facts.ruling(p.dir)
    return ruling.reason if ruling.verdict is Verdict.ORPHAN else None


def needs_ruling(p: Proposal, facts: Facts) -> bool:
    """Whether `p` ends in a removal that needs a ruling (`Facts.strays`): of strays, and of orphans of living topics
    that are marked. Once a directory is marked, nobody asks any more: a starting broker purges it."""
    if p.dir.kind is Kind.STRAY:
        return p.action in (ActionKind.REMOVE, ActionKind.MARK) and not p.removal_started
    ruling = facts.ruling(p.dir)
    return p.action is ActionKind.MARK and ruling.verdict is Verdict.ORPHAN and needs_cover(ruling)


def held_back(proposals: Iterable[Proposal], why: str) -> list[Waiting]:
    """Make all proposals wait, for a reason that concerns the whole cycle."""
    return [_waits(p.dir, p.action, why, None, p.sightings) for p in proposals]


def _waits(d: PartitionDir, action: ActionKind, why: str, until_ms: int | None, sightings: int = 0) -> Waiting:
    return Waiting(d.log_dir, d.name, action, why, until_ms, sightings, d.bytes)


def _broker_there(facts: Facts, log_dir: str) -> bool:
    where = facts.log_dirs.get(log_dir)
    return where is not None and where.holder.state in (HolderState.HELD, HolderState.STARTING)


def compile_topics(expression: str) -> re.Pattern[str]:
    """Compile a topic pattern as Kafka's own tools do (`TopicFilter.IncludeList`): `,` means `|`, spaces are ignored,
    and the result is one regular expression that matches whole names. Nothing is split: `prod(,-test)-logs` means
    `prod(|-test)-logs`. Raises `re.error`."""
    pattern = _BLANK.sub("", expression.replace(",", "|")).strip("\"'")
    if not pattern.strip("|"):
        raise re.error("it is empty, and no topic is called that", pattern)
    if _COUNTED.search(pattern):
        raise re.error("`,` means `|` in a topic pattern, so it cannot stand inside {}", pattern)
    if any(_SET_ALGEBRA.search(found[0], 1) for found in _CLASS.finditer(pattern)):
        raise re.error(
            "Java, unlike Python, combines sets where `[` or `&&` stands inside []: write `\\[` or `&`", pattern
        )
    try:
        return re.compile(pattern)
    except (RecursionError, OverflowError) as error:
        raise re.error(f"it is nested too deeply or has too large a repeat count ({error})", pattern) from None


# An escaped space is part of the pattern.
_BLANK = re.compile(r"(?<!\\) ")
# What `{1,3}` becomes: Java refuses it, Python would match it literally.
_COUNTED = re.compile(r"(?<!\\)\{\d*\|\d*\}")
# A character class as Python reads it (an escaped bracket opens none), and what makes it another set in Java.
_CLASS = re.compile(r"(?<!\\)(?:\\\\)*\[\^?\]?(?:\\.|[^\]\\])*\]?")
_SET_ALGEBRA = re.compile(r"(?<!\\)(?:\\\\)*(?:\[|&&)")


def matching(dirs: Iterable[PartitionDir], topics: AbstractSet[str], *, is_future: bool) -> set[TopicPartition]:
    """The partitions of `topics` whose current (or future) logs are among `dirs`.

    Internal topics are included: the guard "policy" refuses each of their directories, so that the operator sees it.
    """
    wanted = Kind.FUTURE if is_future else Kind.CURRENT
    return {
        TopicPartition(d.topic, d.partition)
        for d in dirs
        if d.kind is wanted and d.topic and d.partition is not None and d.topic in topics
    }


def find_partitions(
    partitions: Collection[TopicPartition], dirs: Iterable[PartitionDir], facts: Facts, *, is_future: bool
) -> tuple[list[PartitionDir], list[TopicPartition]]:
    """The directories of the current (or future) logs of `partitions`, and those of `partitions` that have none.

    Raises KafkaStorageError, with Kafka's message, if a missing one may be in an offline log dir.
    """
    kind = Kind.FUTURE if is_future else Kind.CURRENT
    found: list[PartitionDir] = []
    absent = set(partitions)
    for d in dirs:
        if d.kind is kind and d.topic is not None and d.partition is not None:
            partition = TopicPartition(d.topic, d.partition)
            if partition in partitions:
                found.append(d)
                absent.discard(partition)
    offline = [f.path for f in facts.log_dirs.values() if f.health is Health.OFFLINE]
    missing = sorted(absent, key=str)
    if missing and offline:
        what = "future log" if is_future else "log"
        raise KafkaStorageError(
            f"Failed to delete {what} for {missing[0]} because it may be in one of the offline directories"
            f" {', '.join(offline)}",
            log_dir=offline[0],
            hint="repair the disk; logagent scan shows why the log dir is offline",
        )
    return found, missing
