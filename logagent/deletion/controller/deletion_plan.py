"""What a `topics delete` or `topics purge` would request, decided before anything is written. Pure.

A plan has an id, `<hash of its list and the minute><the minute>`. What it needs is approved word by word, for exactly
that list, for 24 h: `--approve ID:only-copy,limit`. None of the words stands for another.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from logagent.base.dir_names import NEVER_DELETED, why_spared
from logagent.base.records import Reason
from logagent.base.units import counted, instant
from logagent.cleanup.plan.assemble import BlastRadius
from logagent.deletion.store.requests import Approval, Kind, Request, RequestedDirectory, RequestedTopic

LIMITS = BlastRadius()
APPROVAL_LASTS = timedelta(hours=24)
WORDS: tuple[Approval, ...] = ("only-copy", "limit", "no-retention")
NO_ID_HINT = "topics get ids from inter.broker.protocol.version 2.8 on"


@dataclass(frozen=True, slots=True)
class ExistingTopic:
    """A topic that exists in the cluster's metadata now; its id is empty where the cluster gives none. `bytes` is None
    if no snapshot shows it."""

    requested: RequestedTopic
    bytes: int | None = None


class Needed(NamedTuple):
    """An approval that a plan needs, and why."""

    word: Approval
    why: str


@dataclass(frozen=True, slots=True)
class DeletionPlan:
    """An immutable list, with what was left out of it (`dropped`: what, and why) and which approvals it needs."""

    kind: Kind
    cluster_id: str
    topics: tuple[RequestedTopic, ...] = ()
    directories: tuple[RequestedDirectory, ...] = ()
    dropped: tuple[tuple[str, Reason], ...] = ()
    approval: tuple[Needed, ...] = ()
    no_retention: bool = False

    @property
    def bytes(self) -> int:
        return sum(t.bytes for t in self.topics) + sum(d.bytes for d in self.directories)

    def plan_id(self, at: datetime) -> str:
        """The id that approves this list for 24 h from the minute of `at`."""
        minutes = int(at.timestamp() // 60)
        return self._hash(minutes) + f"{minutes:08x}"

    def _hash(self, minutes: int) -> str:
        lines = [f"{self.kind} {self.cluster_id} {self.no_retention} {minutes}"]
        for t in self.topics:
            replicas = ";".join(f"{p.partition}:{','.join(map(str, p.replicas))}" for p in t.partitions)
            lines.append(f"{t.topic_id} {replicas}")
        for d in self.directories:
            lines.append(f"{d.node_id} {d.topic_id} {d.partition} {d.kind} {d.only_copy} {d.log_dir!r} {d.name!r}")
        return hashlib.sha256("\n".join([lines[0], *sorted(lines[1:])]).encode("utf-8", "replace")).hexdigest()[:16]

    def words(self) -> tuple[Approval, ...]:
        """The approvals that it needs, each once."""
        return tuple(word for word in WORDS if any(n.word == word for n in self.approval))

    def approved(self, given: Sequence[str], now: datetime) -> tuple[tuple[Approval, ...], str | None]:
        """Which words these `ID:WORD,…` approve of this plan, and what is wrong: None if it has every word it needs."""
        words: set[str] = set()
        wrong = None
        for each in given:
            plan_id, _, named = each.partition(":")
            problem = self._wrong(plan_id, now)
            if problem is None:
                words |= set(named.split(","))
            else:
                wrong = wrong or problem
        missing = [word for word in self.words() if word not in words]
        if missing:
            wrong = wrong or f"it needs the approval {','.join(missing)}"
        return tuple(word for word in WORDS if word in words), wrong if missing or (given and not words) else None

    def _wrong(self, plan_id: str, now: datetime) -> str | None:
        """Why an id does not stand for exactly this plan at `now`."""
        if not re.fullmatch(r"[0-9a-f]{24}", plan_id):
            return f"{plan_id} is not the id of a plan"
        minutes = int(plan_id[16:], 16)
        if self._hash(minutes) != plan_id[:16]:
            return f"{plan_id} is of another plan: the list has changed since then"
        at = datetime.fromtimestamp(minutes * 60, UTC)  # ours: a made-up one may lie beyond the last year
        if not now - APPROVAL_LASTS <= at <= now + timedelta(minutes=1):
            return f"{plan_id} is of a plan of more than 24 h ago"
        return None


def plan_topics(
    pattern: re.Pattern[str],
    living: Sequence[ExistingTopic],
    cluster_id: str,
    *,
    include_internal: bool = False,
    open_requests: Collection[Request] = (),
    lately: Collection[Request] = (),
    named: str | None = None,
) -> DeletionPlan:
    """Plan to delete the living topics whose whole name matches `pattern`. `named`: the pattern as typed."""
    queued = {t.topic_id for r in open_requests for t in r.topics}
    chosen, dropped = list[ExistingTopic](), list[tuple[str, Reason]]()
    for topic in sorted(living, key=lambda t: t.requested.topic):
        name = topic.requested.topic
        if not pattern.fullmatch(name):
            continue
        why = _refused_name(name, include_internal=include_internal)
        if why is not None:
            dropped.append((name, why))
        elif not topic.requested.topic_id:
            dropped.append((name, Reason("it has no topic id; logagent never deletes a topic by name", NO_ID_HINT)))
        elif topic.requested.topic_id in queued:
            dropped.append((name, Reason("it is already queued for deletion", "logagent topics status")))
        else:
            chosen.append(topic)
    if not chosen and not dropped:
        dropped.append((named or pattern.pattern, Reason("no topic of the cluster has a matching name")))
    approval = [Needed("limit", why) for why in _too_many(chosen, [t for t in living if t.requested.topic_id], lately)]
    return DeletionPlan(
        "topics",
        cluster_id,
        tuple(replace(t.requested, bytes=t.bytes or 0) for t in chosen),
        dropped=tuple(dropped),
        approval=tuple(approval),
    )


def _refused_name(name: str, *, include_internal: bool) -> Reason | None:
    why = why_spared(name, include_internal=include_internal)
    if why is None:
        return None
    return Reason(why, "" if name in NEVER_DELETED else "add --include-internal to delete it anyway")


def asked_lately(requests: Iterable[Request], now: datetime) -> list[Request]:
    """The requests of the last 24 h without the approval `limit`, whatever became of them: small requests add up."""
    first = instant(now - APPROVAL_LASTS)
    return [r for r in requests if "limit" not in r.approvals and r.at >= first]


def _too_many(chosen: Sequence[ExistingTopic], living: Sequence[ExistingTopic], lately: Iterable[Request]) -> list[str]:
    """Which limits the chosen topics exceed, together with those requested lately."""
    if not chosen:
        return []
    sizes = {t.topic_id: t.bytes for r in lately for t in r.topics}
    added = len(sizes.keys() - {t.requested.topic_id for t in chosen})
    everything = sizes | {t.requested.topic_id: t.bytes or 0 for t in living}
    going = {i: everything[i] for i in [*sizes, *(t.requested.topic_id for t in chosen)]}
    more = f" (including {added} requested in the last 24 h)" if added else ""
    why = []
    if LIMITS.are_too_many(len(going)):
        why.append(f"{len(going)} topics exceed {LIMITS.max_dirs}{more}")
    if LIMITS.is_too_large_a_part(len(going), len(everything)):
        part = f"{LIMITS.max_fraction:.0%}"
        why.append(f"{len(going)} of the cluster's {len(everything)} topics are more than {part}{more}")
    size, whole = sum(going.values()), sum(everything.values())
    unsized = sum(t.bytes is None for t in chosen)
    if unsized:
        why.append(f"the size of {unsized} of them is not known: no host's snapshot shows them")
    if size > LIMITS.max_fraction * whole:  # one topic may be most of a cluster
        why.append(f"{size} of the cluster's {whole} bytes exceed {LIMITS.max_fraction:.0%}{more}")
    return why


def _place(d: RequestedDirectory) -> tuple[int, str, str]:
    return d.node_id, d.log_dir, d.name


def plan_directories(
    chosen: Iterable[RequestedDirectory],
    cluster_id: str,
    copies: Mapping[tuple[str, int], Collection[int]],
    *,
    dirs_on_host: Mapping[int, int],
    open_requests: Collection[Request] = (),
    lately: Collection[Request] = (),
    include_internal: bool = False,
    no_retention: bool = False,
    unusable: Sequence[tuple[str, Reason]] = (),
) -> DeletionPlan:
    """Plan to delete directories of a report. `copies`: by (topic id, partition), the nodes that show a current copy
    and whose brokers are live and in sync. Where none is known, a directory is an only copy."""
    queued = [d for r in open_requests for d in r.directories]
    kept, dropped = list[RequestedDirectory](), list(unusable)
    for d in sorted(chosen, key=_place):
        where = f"{d.log_dir}/{d.name} of node {d.node_id}"
        if (why := _refused_name(d.topic, include_internal=include_internal)) is not None:
            dropped.append((where, why))
        elif _place(d) in set(map(_place, queued)):
            dropped.append((where, Reason("it is already queued for deletion", "logagent topics status")))
        else:
            kept.append(d)
    alone = _only_copies([*kept, *queued], copies)
    going = {t.topic_id for r in open_requests for t in r.topics}
    kept = [replace(d, only_copy=d.topic_id in going or (d.topic_id, d.partition) in alone) for d in kept]
    if no_retention:
        alone_why = Reason("it is the only copy: only with retention")
        dropped += [(f"{d.log_dir}/{d.name} of node {d.node_id}", alone_why) for d in kept if d.only_copy]
        kept = [d for d in kept if not d.only_copy]
    return DeletionPlan(
        "directories",
        cluster_id,
        directories=tuple(kept),
        dropped=tuple(dropped),
        approval=tuple(_what_needs_approval(kept, dirs_on_host, lately, no_retention)),
        no_retention=no_retention,
    )


def _only_copies(
    going: Collection[RequestedDirectory], copies: Mapping[tuple[str, int], Collection[int]]
) -> set[tuple[str, int]]:
    """The partitions of which no copy is known to be left: one that a request takes does not count, nor does its node's
    (a stray lies beside its node's own copy, which stays)."""
    taken: dict[tuple[str, int], set[int]] = {}
    for d in going:
        nodes = taken.setdefault((d.topic_id, d.partition), set())
        if d.kind == "orphan":
            nodes.add(d.node_id)
    return {key for key, nodes in taken.items() if not set(copies.get(key, ())) - nodes}


def _what_needs_approval(
    kept: Sequence[RequestedDirectory],
    dirs_on_host: Mapping[int, int],
    lately: Iterable[Request],
    no_retention: bool,
) -> list[Needed]:
    needed, why = list[Needed](), list[str]()
    only = sum(d.only_copy for d in kept)
    if only:
        words = f"{only} of them are the only copy of their partition: no other is known to be live and in sync"
        needed.append(Needed("only-copy", words))
    before = [d for r in lately for d in r.directories]
    topics = {d.topic_id for d in kept}
    together = len(topics | {d.topic_id for d in before})
    if kept and LIMITS.are_too_many(together):
        why.append(f"they belong to {together} topics, more than {LIMITS.max_dirs}")
    for node in sorted({d.node_id for d in kept}):
        places = {(d.log_dir, d.name) for d in [*kept, *before] if d.node_id == node}
        added = len(places) - sum(d.node_id == node for d in kept)
        more = f" (including {added} requested in the last 24 h)" if added else ""
        count, whole = len(places), dirs_on_host.get(node, 0) + added
        if LIMITS.are_too_many(count):
            why.append(f"{count} directories of node {node} exceed {LIMITS.max_dirs}{more}")
        elif LIMITS.is_too_large_a_part(count, whole):
            why.append(f"{count} of node {node}'s {whole} directories exceed {LIMITS.max_fraction:.0%}{more}")
    needed += [Needed("limit", each) for each in why]
    if kept and no_retention:
        strays = counted(sum(d.kind == "stray" for d in kept), "stray")
        needed.append(Needed("no-retention", f"{strays} will be removed at once and cannot be restored"))
    return needed
