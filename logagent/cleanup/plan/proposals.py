"""Renames that are proposed, before any guard has checked them, and what an operator selects for `delete`: topic
patterns as Kafka's tools read them, partitions, their directories. And what a proposal is in the table of claims
(`base.claims`), what it needs, and what is known of that: whose the directory is, what covers it, and who has its log
dir. Decides without I/O.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from collections.abc import Set as AbstractSet
from functools import cache

from logagent.base import dir_names
from logagent.base.claims import JUST, NEEDS, Act, Ask, Claim, Held, Need, Proof, Unmet, Witness, from_proof, met
from logagent.base.errors import KafkaStorageError
from logagent.base.records import (
    LIVE_KINDS,
    ActionKind,
    Health,
    Holder,
    HolderState,
    Kind,
    PartitionDir,
    Reason,
    TopicPartition,
    Verdict,
)
from logagent.cleanup.plan.plan import NO_FLAGS, Flags, Proposal, refused
from logagent.verdict.copies import is_assigned_here, needs_cover
from logagent.verdict.facts import Facts, LogDirFacts

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


def act_of(p: Proposal, facts: Facts) -> Act | None:
    """What `p` is in the table of claims; None for what no guard lets pass."""
    kind = p.dir.kind
    match p.action:
        case ActionKind.REMOVE:
            if kind is Kind.DELETE:
                return Act.REMOVE_MARKED
            of_stray = Act.REMOVE_DUPLICATE if p.duplicate else Act.REMOVE_STRAY
            return of_stray if kind is Kind.STRAY else None
        case ActionKind.REMOVE_LEFTOVERS:
            return Act.REMOVE_LEFTOVERS
        case ActionKind.RESTORE:
            return Act.RESTORE
        case ActionKind.MARK if kind is Kind.STRAY:
            return Act.MARK_STRAY
        case ActionKind.MARK:
            return Act.MARK_ORPHAN if facts.ruling(p.dir).verdict is Verdict.ORPHAN else Act.MARK_ASSIGNED
        case ActionKind.QUARANTINE if p.on_the_way_back:
            return Act.TAKE_BACK
        case ActionKind.QUARANTINE if p.duplicate:
            return Act.SET_ASIDE_DUPLICATE
        case ActionKind.QUARANTINE if p.flags.allow_assigned:
            return Act.DISPLACE
        case ActionKind.QUARANTINE:
            return Act.SET_ASIDE_TO_REMOVE if p.then_removed else Act.SET_ASIDE_ORPHAN
    return None


def need_of(p: Proposal, facts: Facts, claims: frozenset[Claim]) -> Need | None:
    """What the act of `p` needs that has to do with any of `claims`."""
    act = act_of(p, facts)
    return _first_with(NEEDS[act], claims) if act is not None else None


@cache
def _first_with(needs: tuple[Need, ...], claims: frozenset[Claim]) -> Need | None:
    return next((need for need in needs if not need.claims.isdisjoint(claims)), None)


OWNERSHIP = frozenset(
    {
        Claim.TOPIC_ABSENT,
        Claim.TOPIC_RECREATED,
        Claim.NOT_A_REPLICA,
        Claim.COPY_OF,
        Claim.LIVES_HERE,
        Claim.COVERED,
        Claim.OTHERS_IN_SYNC,
        Claim.REMOVAL_STARTED,
    }
)
"""What says whose a directory is, and whether its records are elsewhere."""


def by_rulings(p: Proposal, facts: Facts) -> Ask:
    """Whose the directory is and what covers it, by the rulings on it, and what the operator says to that."""
    asked = (facts.duplicates if p.duplicate else facts.strays).get(p.dir.key)
    proof = list(asked.proof) if asked is not None else []
    if p.dir.kind is not Kind.STRAY:
        # Whose a current directory is, its verdict says, which knows its log dir and spares internal topics.
        proof = [held for held in proof if held.claim is Claim.COVERED]
        proof += () if p.duplicate else facts.ruling(p.dir).proof
    claims = (
        (p.removal_started, Claim.REMOVAL_STARTED, Witness.MARK_AND_COUNT),
        (p.flags.allow_assigned, Claim.ALLOWED, Witness.OPERATOR),
        (is_given_up(p, facts), Claim.GIVEN_UP, Witness.OPERATOR),
    )
    proof += [Held(claim, witness, facts.now_ms) for yes, claim, witness in claims if yes]
    if p.flags.only_deleted:
        # A word that the fleet deleted its topic says nothing of a topic that lives.
        proof = [held for held in proof if held.claim not in (Claim.COVERED, Claim.GIVEN_UP)]
    return from_proof(proof, facts.moment(p.dir))


def by_holder(holder: Holder, p: Proposal, facts: Facts) -> Ask:
    """Whether a log dir is nobody's, or its holder says that it serves it."""
    held: list[Held] = []
    if not holder.state.is_broker:
        held.append(Held(Claim.STOPPED, Witness.LOCK, facts.now_ms))
    if holder.state is HolderState.HELD and holder.serving is not None:
        held.append(holder.serving)
    return from_proof(held, facts.moment(p.dir)._replace(process_started_ms=holder.start_time_ms))


def proof_of(p: Proposal, facts: Facts) -> Proof:
    """What a proposal that every guard has passed rests on, as far as it concerns the directory and its broker: what
    plan and journal keep of it."""
    proof: list[Held] = []
    where = facts.log_dirs.get(p.dir.log_dir)
    needs: list[tuple[Need | None, Callable[[], Ask]]] = [(need_of(p, facts, OWNERSHIP), lambda: by_rulings(p, facts))]
    if where is not None:
        needs.append((need_of(p, facts, JUST[Claim.STOPPED]), lambda: by_holder(where.holder, p, facts)))
    for need, ask in needs:
        found = met(need, ask()) if need is not None else ()
        proof += () if isinstance(found, Unmet) else found
    return tuple(proof)


def not_online(where: LogDirFacts) -> Reason | None:
    if where.health in (Health.ONLINE, Health.FULL):
        return None
    fact = f"{where.path} is {where.health.value}: {where.health_reason or 'no reason was recorded'}"
    return refused("online", fact, "repair or remount the disk; logagent check shows its health", Claim.ONLINE)
