"""Renames that are proposed, before any guard has checked them, and what an operator selects for `delete`: topic
patterns as Kafka's tools read them, partitions, their directories."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from collections.abc import Set as AbstractSet

from logagent.base import dir_names
from logagent.base.errors import KafkaStorageError
from logagent.base.records import LIVE_KINDS, ActionKind, Health, Kind, PartitionDir, TopicPartition, Verdict
from logagent.cleanup.plan.plan import NO_FLAGS, Flags, Proposal
from logagent.verdict.facts import Facts
from logagent.verdict.strays import is_assigned_here, needs_cover

NewUuid = Callable[[], str]


def rename_away(
    directory: PartitionDir,
    *,
    is_stray: bool,
    reason: str,
    new_uuid: NewUuid,
    quarantine_dir: str | None = None,
    flags: Flags = NO_FLAGS,
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
        flags=flags,
    )


def orphan_because(p: Proposal, facts: Facts) -> str | None:
    """Why the directory that `p` sets aside or marks is an orphan; None if it is not one (on request) or a stray."""
    if p.action not in (ActionKind.QUARANTINE, ActionKind.MARK) or p.dir.kind not in LIVE_KINDS:
        return None
    ruling = facts.ruling(p.dir)
    return ruling.reason if ruling.verdict is Verdict.ORPHAN else None


def needs_ruling(p: Proposal, facts: Facts) -> bool:
    """Whether `p` ends in a removal that needs a ruling (`Facts.strays`): of strays, and of directories of living
    topics that are marked, or set aside and removed at once. Once one is marked, nobody asks any more: a starting
    broker purges it."""
    if p.dir.kind is Kind.STRAY:
        return p.action in (ActionKind.REMOVE, ActionKind.MARK) and not (p.removal_started or p.duplicate)
    removes = p.action is ActionKind.MARK or (p.then_removed and not p.duplicate)
    return removes and needs_cover(facts.ruling(p.dir))


def is_given_up(p: Proposal, facts: Facts) -> bool:
    """Whether the operator gives up the records of a directory, wherever else they are: of a stray that is assigned
    here only together with `--allow-assigned`, and by a request only of one whose partition is known to live elsewhere
    (a number that was approved says nothing of what the directory is)."""
    if p.dir.kind is not Kind.STRAY:
        return p.flags.even_last_copy
    ruling = facts.strays.get(p.dir.key)
    if p.removal_started or ruling is None:
        return False
    if not p.flags.even_last_copy and not (p.flags.only_copy and ruling.covered is not None):
        return False
    return p.flags.allow_assigned or not (ruling.ruling is None or is_assigned_here(ruling.ruling))


def by_word_alone(p: Proposal, facts: Facts) -> bool:
    """Whether a stray goes of which nothing shows that it may: neither whose it is, nor another copy of all of it.
    Such a plan needs an approval, whatever its size; a request has one for exactly this directory."""
    ruling = facts.strays.get(p.dir.key)
    shown = ruling is None or ruling.may_go or p.flags.only_copy
    return p.dir.kind is Kind.STRAY and not shown and is_given_up(p, facts)


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

    Raises KafkaStorageError if a missing one may be in an offline log dir (with Kafka's message), or in one that the
    broker's configuration has lost.
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
    if missing and facts.forgotten is not None:
        why = facts.forgotten
        raise KafkaStorageError(f"Failed to delete {missing[0]}, which may be elsewhere: {why.fact}", hint=why.hint)
    return found, missing
