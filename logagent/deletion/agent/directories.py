"""What a request takes on one session: directories that it lists, and strays of topics that it decided to delete.

Each requested directory is identified, then goes through the plan's guards. A request replaces the wait for sightings
and ages, and each of its approvals one limit; it proves nothing. What the verdict calls orphan is quarantined; a stray
is removed once its retention is over, or at once with `no-retention`. Strays of a deleted topic go in report mode too
(`removals_by_request`), and `topic_answers` is what this host has left of each.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from logagent.base.claims import Claim
from logagent.base.dir_names import why_spared
from logagent.base.errors import LogAgentError
from logagent.base.records import LIVE_KINDS, ActionKind, DirKey, Kind, Outcome, PartitionDir, Reason
from logagent.base.units import LARGEST_COUNT, human_time, rfc3339
from logagent.cleanup.plan.assemble import BlastRadius, within_limits
from logagent.cleanup.plan.plan import Execution, Flags, Plan, Proposal, Refusal, action_id, refused
from logagent.cleanup.plan.proposals import rename_away
from logagent.cleanup.plan.queue import RemovalIntents, full_topic, marked_at_ms, removal_has_started
from logagent.cleanup.session.recall import actor_of
from logagent.cleanup.session.session import Session, new_uuid
from logagent.cleanup.state.journal import Entry
from logagent.deletion.agent.memory import APART_MS, Permission, RequestMemory, Row, difference, is_final, row_key
from logagent.deletion.store.answers import DirectoryAnswer, TopicAnswer, as_words
from logagent.deletion.store.requests import Filed, Request, RequestedDirectory, moment
from logagent.verdict.evidence.stray_questions import log_ends, read_end
from logagent.verdict.facts import Facts
from logagent.verdict.marks import Mark

NEXT_STOP = "the broker's next stop"
# Guards whose refusals end by themselves.
_PASSES = ("window", "online", "in-use", "lock", "journal")
_AGAIN = "request it again from a current report"
_ON_THE_HOST = "it stays; on the host, `logagent scan` says why, and `logagent delete --allow-assigned` takes it anyway"
_COVER = f"it stays until another copy has all of it, or {_AGAIN} and approve it as an only copy"
_LIMIT = "request fewer at a time, or approve the limit in a new request"


@dataclass(slots=True)
class Places:
    """A session's directories, by name and by partition."""

    by_name: dict[DirKey, PartitionDir] = field(default_factory=dict)
    by_partition: dict[tuple[str | None, int | None], list[PartitionDir]] = field(default_factory=dict)

    @classmethod
    def of(cls, dirs: Iterable[PartitionDir]) -> Places:
        places = cls()
        for d in dirs:
            places.by_name[DirKey(posixpath.normpath(d.log_dir), d.name)] = d
            places.by_partition.setdefault((d.topic_id, d.partition), []).append(d)
        return places

    def same(self, topic_id: str, partition: int, inode: int) -> PartitionDir | None:
        """The directory under whatever name it has now."""
        return next((d for d in self.by_partition.get((topic_id, partition), ()) if d.inode == inode), None)


@dataclass(slots=True)
class DirectoryRun:
    """`before`: earlier answers, by `row_key`. `renames_only`: for `prestart`, which removes nothing and asks nobody.
    `why_not_at_once`: why a stray must not be removed before its retention is over, although that was approved."""

    session: Session
    facts: Facts
    number: str
    request: Request
    before: Mapping[str, Row]
    stop: Callable[[], bool]
    next_try: str | None
    why_not_at_once: Callable[[], str | None]
    renames_only: bool = False
    plan: Plan | None = None
    execution: Execution | None = None
    _places: Places = field(init=False)
    _marks: Mapping[DirKey, Mark] = field(init=False)
    _restores: Mapping[tuple[str, int], Entry] = field(init=False)
    _intents: RemovalIntents = field(init=False)
    _rows: Mapping[DirKey, RequestedDirectory] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._places = Places.of(self.session.dirs)
        self._marks = self.session.recalled.marks
        self._restores = self.session.journal.restores()
        self._intents = self.session.recalled.removal_intents

    def run(self, rows: Sequence[RequestedDirectory]) -> dict[str, Row]:
        """Carry out `rows`, those of this node. Raises JournalError."""
        answers: dict[str, DirectoryAnswer] = {}
        found: dict[str, PartitionDir] = {}
        for row in rows:
            key, known = row_key(row), self.before.get(row_key(row))
            if known is not None and is_final(known.answer):
                answers[key] = known.answer
                continue
            match = self._match(row)
            if isinstance(match, DirectoryAnswer):
                answers[key] = match
            else:
                found[key] = match
        asked = {row_key(row): row for row in rows}
        ends = log_ends([*found.values()], self.session.log_dirs.opened(), self.session.calls)
        proposals: dict[str, Proposal] = {}
        for key, d in found.items():
            row = asked[key]
            proposed = self._identified(row, d, ends) or self._standing(row, d) or self._propose(row, d)
            if isinstance(proposed, DirectoryAnswer):
                answers[key] = proposed
            else:
                proposals[key] = proposed
        answers |= self._act(asked, proposals)
        return {key: Row(answers[key], r.topic_id, r.partition, r.inode) for key, r in asked.items()}

    # Identity

    def _match(self, row: RequestedDirectory) -> PartitionDir | DirectoryAnswer:
        """The directory that may be the one that `row` asks for, or the answer that says that there is none."""
        here = posixpath.normpath(row.log_dir)
        named = self._places.by_name.get(DirKey(here, row.name))
        d = self._places.same(row.topic_id, row.partition, row.inode)
        if d is None:
            return self._gone(row, named)
        if is_restored(d, self._restores, self.request) or self._was_restored(row):
            return _refused(row, "restored", "it was restored on this host since the request", _AGAIN)
        mark = self._marks.get(d.key)
        home = mark.original_dir if mark is not None and mark.original_dir else d.log_dir
        if posixpath.normpath(home) != here:
            return _refused(row, "identity", f"it is {d.log_dir}/{d.name} now", _AGAIN)
        return d

    def _was_restored(self, row: RequestedDirectory) -> bool:
        """Whether it was restored from the listed name since the request: what has that name now is not what it was."""
        since = moment(self.request.at).timestamp() * 1000 - APART_MS
        return any(e.intent.name == row.name and e.at_ms >= since for e in self._restores.values())

    def _standing(self, row: RequestedDirectory, d: PartitionDir) -> DirectoryAnswer | None:
        """The answer if nothing is to be done with the directory under the name that it has now."""
        if row.kind == "stray" and d.kind is Kind.STRAY and d.name == row.name:
            return None
        if row.kind == "orphan" and d.kind in (Kind.STRAY, Kind.DELETE):
            return self._quarantined(row, d, self._marks.get(d.key))
        if row.kind == "orphan" and d.name == row.name:
            return None
        path = f"{d.log_dir}/{d.name}"
        if row.kind == "stray" and d.kind is Kind.DELETE:
            return self._waits(row, f"it is marked for deletion, as {path}")
        return _refused(row, "identity", f"it is {path} now", _AGAIN)

    def _quarantined(self, row: RequestedDirectory, d: PartitionDir, mark: Mark | None) -> DirectoryAnswer:
        """An orphan that lost its name already: by this request before we could remember it, by another, or because
        its broker started, which renames what is not its own."""
        by = None
        if mark is None:
            by = "the broker renamed it when it started; this request does not remove it under that name"
        elif mark.request != self.number:
            by = f"request {mark.request} had it" if mark.request else "logagent had it quarantined on this host"
        return DirectoryAnswer(
            row.log_dir,
            row.name,
            "done",
            "quarantined",
            fact=by,
            bytes=min(d.allocated, LARGEST_COUNT),
            new_name=d.name,
        )

    def _gone(self, row: RequestedDirectory, named: PartitionDir | None) -> DirectoryAnswer:
        """Absent, if everything that could hold it was looked at."""
        if named is not None:
            why = difference(row, named, directory_id=row.directory_id, end_offset=row.end_offset)
            return _refused(row, "identity", f"another directory has this name now: {why}", _AGAIN)
        hidden = self.facts.not_seen()
        if hidden is not None:
            return self._waits(row, hidden.fact, hidden.hint)
        if not self.session.inventory.whole:
            return self._waits(row, "not every directory was inspected")
        ours = {posixpath.normpath(path) for path in (*self.facts.log_dirs, *self.facts.left_out)}
        if posixpath.normpath(row.log_dir) not in ours:
            return _refused(row, "identity", f"this host has no log dir {row.log_dir}", _AGAIN)
        return DirectoryAnswer(row.log_dir, row.name, "done", "absent")

    def _identified(
        self, row: RequestedDirectory, d: PartitionDir, ends: Mapping[DirKey, int | None]
    ) -> DirectoryAnswer | None:
        if d.key not in ends:
            return self._waits(row, f"{d.log_dir}/{d.name} could not be read just now")
        # What a removal has begun to take ends elsewhere by now.
        end = row.end_offset if removal_has_started(d, self._intents) else ends[d.key]
        where = self.facts.log_dirs.get(d.log_dir)
        directory_id = where.directory_id if where is not None and not where.quarantine else row.directory_id
        why = difference(row, d, directory_id=directory_id, end_offset=end)
        return None if why is None else _refused(row, "identity", why, _AGAIN)

    def _still_the_same(self, p: Proposal, facts: Facts) -> Reason | None:
        """A guard of its own: copies may be read for hours between the plan and the act."""
        row = self._rows[p.dir.key]
        if p.removal_started or row.end_offset is None:
            return None
        try:
            with self.session.calls.at(p.dir.log_dir):
                end = read_end(self.session.log_dirs.opened()[p.dir.log_dir], p.dir)
        except (LogAgentError, KeyError) as error:
            return refused("online", f"it could not be read right before: {error}", "see logagent status")
        why = difference(row, p.dir, directory_id=row.directory_id, end_offset=end)
        return None if why is None else refused("inside", why, _AGAIN, claim=Claim.SAME_DIRECTORY)

    # What is done

    def _propose(self, row: RequestedDirectory, d: PartitionDir) -> Proposal | DirectoryAnswer:
        approvals = self.request.approvals
        if row.only_copy and "only-copy" not in approvals:
            fact, hint = "when it was requested, it was the only copy", f"{_AGAIN} and approve that"
            return _refused(row, "only-copy", fact, hint)
        flags = Flags(include_internal=why_spared(row.topic, include_internal=False) is not None)
        if d.kind is not Kind.STRAY:
            away = rename_away(
                d, is_stray=True, reason="requested", new_uuid=new_uuid, flags=flags,
                quarantine_dir=self.facts.quarantine_dirs.get(d.log_dir),
            )  # fmt: skip
            return replace(away, approved="limit" in approvals)
        if self.renames_only:
            return self._waits(row, "the daemon removes strays, not prestart")
        mark = self._marks.get(d.key)
        due = marked_at_ms(d, mark, self.session.recalled.corrected) + self.session.settings.cleanup.stray_retention
        started = removal_has_started(d, self._intents)
        if due > self.facts.now_ms and not started:
            why = None if "no-retention" not in approvals or row.only_copy else self.why_not_at_once()
            if why is not None or "no-retention" not in approvals or row.only_copy:
                kept = f"kept until {human_time(due)} (cleanup.stray_retention)"
                return replace(self._waits(row, f"{kept}; {why}" if why else kept), next_try_at=rfc3339(due))
        return Proposal(
            ActionKind.REMOVE,
            d,
            "requested",
            full_topic=full_topic(d, mark) or (row.topic if row.topic.startswith(d.topic or "\0") else None),
            due_at_ms=due,
            approved="limit" in approvals,
            removal_started=started,
            flags=replace(flags, only_copy=row.only_copy),
        )

    def _act(
        self, rows: Mapping[str, RequestedDirectory], proposals: Mapping[str, Proposal]
    ) -> dict[str, DirectoryAnswer]:
        if not proposals:
            return {}
        doubt = self.session.recalled.doubt
        if doubt is not None:
            return {key: self._waits(rows[key], doubt.why) for key in proposals}
        plan = self.plan = self.session.plan(list(proposals.values()), facts=self.facts)
        stopped = plan.needs_approval or self._leaves_nothing(plan)
        if stopped is not None:
            return {key: self._refused_by(rows[key], p, [*plan.refusals, stopped]) for key, p in proposals.items()}
        manager = self.session.log_manager(stop=self.stop)
        manager.actor = actor_of(self.number)
        manager.guards = (*manager.guards, self._still_the_same)
        self._rows = {p.dir.key: rows[key] for key, p in proposals.items()}
        execution = self.execution = manager.execute(plan)
        refusals = [*plan.refusals, *execution.refusals]
        answers: dict[str, DirectoryAnswer] = {}
        for key, p in proposals.items():
            row, done = rows[key], execution.results.get(action_id(p))
            if done is not None and done.outcome is Outcome.DONE:
                removed = p.action is ActionKind.REMOVE
                answers[key] = DirectoryAnswer(
                    row.log_dir, row.name, "done", "removed" if removed else "quarantined", new_name=p.new_name,
                    bytes=min(done.freed_bytes if removed else p.dir.allocated, LARGEST_COUNT),
                )  # fmt: skip
            elif any(r.key == p.dir.key for r in refusals):
                answers[key] = self._refused_by(row, p, refusals)
            else:
                answers[key] = self._waits(row, (done.error if done is not None else None) or "it was not reached")
        return answers

    def _leaves_nothing(self, plan: Plan) -> Refusal | None:
        """No request, however approved, takes the last assigned directory of a host (or acts if none is known)."""
        taken = {p.dir.key for p in plan.actions if p.dir.kind in LIVE_KINDS}
        if not taken or any(key not in taken for key in self.facts.assigned_dirs()):
            return None
        fact = "it would leave this host without any assigned partition dir"
        return Refusal(refused("blast-radius", fact, "delete these on the host: logagent cleanup --execute --approve"))

    def _refused_by(self, row: RequestedDirectory, p: Proposal, refusals: Sequence[Refusal]) -> DirectoryAnswer:
        """The refusal of this directory, else the one of the whole plan, with a hint for whoever requested it."""
        r = (next((r for r in refusals if r.key == p.dir.key), None) or refusals[-1]).why
        if r.code == "window":
            fact = f"waiting for {NEXT_STOP}: {r.fact}" if p.dir.kind in LIVE_KINDS else r.fact
            return replace(self._waits(row, fact, r.hint), claim=r.code, next_try_at=None)
        if r.claim is Claim.SAME_DIRECTORY and r.hint == _AGAIN:
            return _refused(row, "identity", r.fact, r.hint)
        if r.code in _PASSES:
            return replace(self._waits(row, r.fact, r.hint), claim=r.code)
        hint = r.hint
        if r.code == "assigned":
            hint = _COVER if p.dir.kind is Kind.STRAY else _ON_THE_HOST
        elif r.code == "blast-radius" and not p.approved:
            hint = _LIMIT
        return replace(_refused(row, r.code, r.fact, hint), next_try_at=self.next_try)

    def _waits(self, row: RequestedDirectory, fact: str, hint: str | None = None) -> DirectoryAnswer:
        return DirectoryAnswer(
            row.log_dir, row.name, "waits", fact=as_words(fact), hint=hint and as_words(hint), next_try_at=self.next_try
        )


def refuse_all(rows: Iterable[RequestedDirectory], before: Mapping[str, Row], why: Reason) -> dict[str, Row]:
    """The answers to a request that is not carried out: what was done before stays so."""
    answers: dict[str, Row] = {}
    hint = "set orders.accept = true on that host" if why.code == "accept" else _AGAIN
    for row in rows:
        known = before.get(row_key(row))
        done = known is not None and is_final(known.answer)
        answer = known.answer if known is not None and done else _refused(row, why.code, why.fact, hint)
        answers[row_key(row)] = Row(answer, row.topic_id, row.partition, row.inode)
    return answers


def is_restored(d: PartitionDir, restores: Mapping[tuple[str, int], Entry], request: Request) -> bool:
    """Whether `d` has the name that a restore gave it, unless that was certainly before the request: a request is
    stamped by the operator's clock, a restore by this host's."""
    entry = restores.get((d.name, d.inode))
    return entry is not None and entry.at_ms >= moment(request.at).timestamp() * 1000 - APART_MS


def updated(rows: Mapping[str, Row], session: Session, facts: Facts, request: Request) -> dict[str, Row]:
    """What became since of directories that were quarantined: removed, restored, or renamed once more. Only under the
    name that it got then is it the same: a new directory of the partition can have the old inode."""
    places, restores = Places.of(session.dirs), session.journal.restores()
    now: dict[str, Row] = dict(rows)
    for key, row in rows.items():
        if row.answer.result != "quarantined":
            continue
        d = places.same(row.topic_id, row.partition, row.inode)
        if d is None:
            if session.inventory.whole and facts.not_seen() is None:
                now[key] = replace(row, answer=replace(row.answer, result="removed"))
            continue
        if d.name == row.answer.new_name:
            continue
        claim, fact = "identity", f"it was quarantined as {row.answer.new_name}, and is {d.log_dir}/{d.name} now"
        if d.kind in LIVE_KINDS and is_restored(d, restores, request):
            claim, fact = "restored", "it was quarantined, and restored on this host since"
        answer = replace(row.answer, state="refused", result=None, claim=claim, fact=as_words(fact), hint=_AGAIN)
        now[key] = replace(row, answer=answer)
    return now


def _refused(row: RequestedDirectory, claim: str, fact: str, hint: str | None = None) -> DirectoryAnswer:
    return DirectoryAnswer(
        row.log_dir, row.name, "refused", claim=claim, fact=as_words(fact), hint=hint and as_words(hint)
    )


_GONE = (Kind.STRAY, Kind.DELETE)


def removals_by_request(
    plan: Plan, memory: RequestMemory, marks: Mapping[DirKey, Mark], facts: Facts, limits: BlastRadius
) -> list[Proposal]:
    """The due removals of a plan that requests of the fleet have asked for, as many as the limits of a day allow.

    What a request quarantined goes under the name that it got then, like anything that is quarantined. A stray of a
    topic that a request decided to delete goes only if this host itself has proof that the topic is deleted: another
    copy that covers it is none.
    """
    permissions = memory.may_go()
    chosen: list[Proposal] = []
    for p in plan.actions:
        if p.action is not ActionKind.REMOVE:
            continue
        mark, permission = marks.get(p.key), permissions.get(p.dir.topic_id or "")
        if mark is not None and mark.request is not None and memory.counts(mark.request):
            chosen.append(p)
        elif permission is not None and p.dir.kind is Kind.STRAY:
            chosen.append(
                replace(p, approved=p.approved or permission.limit, flags=replace(p.flags, only_deleted=True))
            )
    may_join = within_limits([], facts, limits)
    return [p for p in chosen if may_join(p)]


@dataclass(frozen=True, slots=True)
class TopicOnDisk:
    """What an inventory shows of one topic id. `hidden`: what was not inspected, in words. `unread`: what is known of
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
    whole = session.inventory.whole
    hidden = unseen.fact if unseen is not None else None if whole else "not every directory was inspected"
    permissions, unread = memory.may_go(), _unread(session.dirs)
    return {
        number: tuple(
            answer_of(
                topic_id,
                TopicOnDisk(tuple(found[topic_id]), hidden, freed.get(topic_id, 0), tuple(unread.get(topic, ()))),
                permissions.get(topic_id),
                _why_no_word(memory, number, topic_id, accept=session.settings.orders.accept),
                plan,
            )
            for topic_id, topic in ids
        )
        for number, ids in wanted.items()
    }


def _unread(dirs: Iterable[PartitionDir]) -> dict[str, list[str]]:
    """By topic name, `TopicOnDisk.unread`."""
    found: dict[str, list[str]] = {}
    for d in dirs:
        if d.topic_id is None and d.topic is not None and d.kind in LIVE_KINDS:
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


def answer_of(
    topic_id: str, left: TopicOnDisk, permission: Permission | None, why_not_permitted: str, plan: Plan | None
) -> TopicAnswer:
    live = [d for d in left.dirs if d.kind not in _GONE]
    gone = [d for d in left.dirs if d.kind in _GONE]
    words, next_try = "; ".join(filter(None, (left.hidden, *left.unread[:1]))), None
    if live and not words:
        words = "the broker removes or renames what it still has under its own name, once it runs"
    if gone and (permission is None or why_not_permitted):
        words = "; ".join(filter(None, (words, why_not_permitted)))
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
        return f"{refusal.why.code}: {refusal.why.fact} ({refusal.why.hint})", None
    waiting = [w for w in plan.waiting if w.key in keys]
    until = min((w.why.until_ms for w in waiting if w.why.until_ms is not None), default=None)
    if until is not None:
        return f"{waiting[0].why.fact}: kept until {human_time(until)}", rfc3339(until)
    return (waiting[0].why.fact, None) if waiting else ("", None)
