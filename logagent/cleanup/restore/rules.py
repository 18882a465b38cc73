"""Possible restores of `-stray` and `-delete` dirs, before any guard has checked them.

With `--replace` the partition is current at every moment: a `-delete` dir is set aside first (a broker would purge what
gets its name), then swapped with the directory that has the current name, which then gets a new stray name.

A name does not identify a topic's incarnation. A restored directory of an old incarnation would displace the living
one, and the topic would serve nothing; a copy whose partition is led elsewhere is truncated to what that leader has;
and what is not assigned to it, a KRaft broker before 3.7 deletes at its next start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replaced

from logagent.base import dir_names
from logagent.base.claims import Claim
from logagent.base.dir_names import renamed_at_ms
from logagent.base.records import LIVE_KINDS, ActionKind, DirKey, Kind, PartitionDir, Reason
from logagent.cleanup.plan.plan import Flags, Proposal, Refusal, refused
from logagent.cleanup.plan.proposals import NewUuid, rename_away
from logagent.cleanup.plan.queue import RemovalIntents, full_topic, why_not_whole
from logagent.kafka.extents import EpochEnd, LogExtent
from logagent.kafka.image import AssignmentImage, PartitionAssignment
from logagent.verdict.copies import covers, past_retention, why_not_covered
from logagent.verdict.facts import Facts
from logagent.verdict.marks import Mark

# Never "get it from a replica": nobody has asked one, and this may be the only copy.
_COPY_IT = "copy what is left of it elsewhere before anything removes it, if that may be the only copy"


def home_of(d: PartitionDir, mark: Mark | None, facts: Facts) -> str | None:
    """The log dir that `d` goes back to: its own, unless that is a quarantine directory; None if unknown.

    If the one that it was quarantined from has another path now, the only log dir on its file system is the same one.
    """
    where = facts.log_dirs.get(d.log_dir)
    if where is None or not where.quarantine:
        return d.log_dir
    if mark is None or mark.original_dir is None:
        return None
    if mark.original_dir in facts.log_dirs:
        return mark.original_dir
    dirs = [f for f in facts.log_dirs.values() if not f.quarantine]
    beside = [f.path for f in dirs if f.identity is not None and f.identity.device == d.device]
    return beside[0] if len(beside) == 1 else None


def _cannot_restore(
    d: PartitionDir, name: str | None, mark: Mark | None, intents: RemovalIntents, removed: str | None
) -> Reason | None:
    if d.kind not in (Kind.STRAY, Kind.DELETE) or d.partition is None:
        fact = removed or f"it is a {d.kind.value} dir"
        return refused("policy", fact, "only -stray and -delete dirs can be restored")
    not_whole = why_not_whole(d, intents, mark)
    if not_whole is not None:
        return refused("journal", not_whole.fact, not_whole.hint, claim=Claim.WHOLE)
    if d.segments == 0:
        return refused("policy", "it has no segments left", "there is nothing to restore")
    if name is None:
        fact = f"its name was truncated and the journal does not know the full topic ({d.topic}…)"
        return refused("policy", fact, "name the topic with --topic-name")
    if d.topic is None or not name.startswith(d.topic):
        return refused("policy", f"topic {name} does not begin with {d.topic}", "check --topic-name")
    return None


def _incomplete(d: PartitionDir, copy: CopyRead | None) -> Reason | None:
    if d.error is not None or copy is None:
        fact = f"it cannot be trusted: {d.error or 'it cannot be read'}"
        return refused("inside", fact, "inspect it; logagent will not touch it")
    if copy.without_log:
        fact = f"{copy.without_log[0]} is there, and its .log is not: its removal had started"
        return refused("journal", fact, _COPY_IT)
    if copy.deleted and not _starts_at_first_segment(copy):
        fact = (
            f"a broker was about to unlink {copy.deleted[0]}, and the log start offset is not known to be above that:"
            " its removal had started, or retention had deleted that segment"
        )
        return refused("journal", fact, _COPY_IT)
    return None


def _starts_at_first_segment(copy: CopyRead) -> bool:
    """Whether what is below the first segment was deleted from the log, not with the whole log: then its log start
    offset moved there, and with it the start of its first leader epoch (`LeaderEpochFileCache.truncateFromStart`). A
    whole log loses its epochs."""
    known = max(copy.log_start_back, copy.log.epochs[0][1] if copy.log.epochs else 0)
    return copy.log.log_start is not None and known >= copy.log.log_start


def _unknown_place(d: PartitionDir, home: str | None, facts: Facts) -> Reason | None:
    """Refuses if it is not known where it goes back to, or if its partition may be current in a log dir that is offline
    or was not inspected."""
    if home is None:
        fact = "it is not known which log dir it was quarantined from"
        return refused("journal", fact, "move it back by hand while the broker is stopped")
    hidden = facts.not_seen()
    if hidden is not None:
        return refused("online", f"{hidden.fact}: the partition may be current there", hidden.hint)
    return None


@dataclass(frozen=True, slots=True)
class RestoreOptions:
    """What the operator asked for explicitly. `topic`: the full name of a truncated topic that the journal lacks."""

    replace: bool = False
    even_last_copy: bool = False
    leader_will_truncate: bool = False
    broker_will_delete: bool = False
    topic: str | None = None
    retention_will_delete: bool = False


@dataclass(frozen=True, slots=True)
class CopyRead:
    """A directory to be restored, as found on disk.

    `rebuild_some`, `rebuild_all`: bytes that the broker reads to rebuild the indexes that need it, or all of them.
    `without_log`: index files whose `.log` is missing. `deleted`: files below the first segment that a broker was about
    to unlink. `log_start_back`: the log start offset that is restored with it (0: none); then `in_place` is the log of
    the current directory of its name. `first_check`: what retention deletes of it as soon as a broker has loaded it.
    `segments`: base offset and bytes of each, in order.
    """

    log: LogExtent
    rebuild_some: int = 0
    rebuild_all: int = 0
    without_log: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    log_start_back: int = 0
    in_place: LogExtent | None = None
    first_check: Reason | None = None
    segments: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Owner:
    """Assignments as seen by broker `node_id`. `image`: the first usable source, None if there is none.

    `leaders`: by (log dir, name), the partition leader's end offset for the directory's last leader epoch.
    `settings_as_of`: a remark on how old what is known of a topic's retention is.
    `deletes_unassigned`: this broker may delete, at its start, every log that is not assigned to it (`deletes_strays`).
    `version_doubt`: what contradicts the version that would not. `zookeeper`: it runs in ZooKeeper mode, and loads
    every log.
    """

    image: AssignmentImage | None = None
    node_id: int | None = None
    leaders: Mapping[DirKey, EpochEnd] = field(default_factory=dict)
    deletes_unassigned: bool = False
    version_doubt: Reason | None = None
    zookeeper: bool = False
    settings_as_of: Mapping[str, str] = field(default_factory=dict)

    def refuses(self, back: Back, options: RestoreOptions) -> Reason | None:
        """Why it cannot be restored as a partition of that topic; None if it can."""
        return (
            self._other_incarnation(back)
            or self._would_be_deleted(back, options)
            or self._would_be_truncated(back, options)
            or self._would_expire(back, options)
            or self._gone_at_leader(back, options)
        )

    def says(self, back: Back) -> list[str]:
        """Remarks for the operator on a restore that is not refused, each a sentence."""
        return [self._owner_unsure(back), self.settings_as_of.get(back.topic, "")]

    def _owner_unsure(self, back: Back) -> str:
        if self.image is None:
            return "There are no assignments, so its owner is unknown."
        if self._assigned(back) is not None:
            return ""
        if not self.image.complete and back.topic not in self.image.by_name:
            return "Its topic is not in the assignments, which may be incomplete."
        return "It is not assigned to this broker, which sets it aside again at its start (since 3.7)."

    def expires(self, back: Back) -> Reason | None:
        """What retention deletes, or may delete, of it once it is restored; None if nothing."""
        return back.copy.first_check if self._would_be_loaded(back) else None

    def _other_incarnation(self, back: Back) -> Reason | None:
        d, topic, there = back.dir, back.topic, back.there
        mine = d.topic_id or "no topic id"
        living = self.image.by_name.get(topic) if self.image is not None else None
        if living is None and there is not None and (there.topic_id is None or there.topic_id != d.topic_id):
            fact = f"it has {mine}, and {there.name} has {there.topic_id or 'none'};"
            if self.image is None:
                fact += " there are no assignments to check"
            else:
                fact += f" the assignments do not list topic {topic}"
            hint = "provide assignments that list the topic (logagent assignments show)"
            return refused("assigned", fact, hint)
        if self.image is None:
            return None
        if living is not None and living.topic_id != d.topic_id:
            fact = f"topic {topic} now exists with {living.topic_id or 'no topic id'}; this directory has {mine}"
            hint = "it belongs to another incarnation of that topic; copy its records by other means"
            return refused("assigned", fact, hint)
        lives_as = self.image.by_id.get(d.topic_id) if d.topic_id is not None else None
        if lives_as is not None and lives_as.name != topic:
            fact = f"its topic id is that of topic {lives_as.name}"
            return refused("assigned", fact, "check its name (--topic-name)")
        return None

    def _would_be_deleted(self, back: Back, options: RestoreOptions) -> Reason | None:
        if not self.deletes_unassigned or options.broker_will_delete or self._assigned(back) is not None:
            return None
        assigned = "it is not assigned to this broker" if self.image is not None else "no assignments say whose it is"
        fact = f"{assigned}, and before 3.7 a KRaft broker deletes what is not assigned to it when it starts"
        hint = (
            "provide assignments that name this broker, or set kafka.version if it is newer; or copy the directory and "
            "add --broker-will-delete"
        )
        if self.version_doubt is not None:
            fact += f" ({self.version_doubt.fact})"
            hint = f"{self.version_doubt.hint}; or copy the directory and add --broker-will-delete"
        return refused("assigned", fact, hint)

    def _would_be_truncated(self, back: Back, options: RestoreOptions) -> Reason | None:
        partition, log = self._assigned(back), back.copy.log
        if partition is None or options.leader_will_truncate:
            return None
        # Without an in-sync replica any other one may be elected (KIP-966, or uncleanly).
        others = [node for node in partition.isr or partition.replicas if node != self.node_id]
        answer = self.leaders.get(back.dir.key)
        if not others or (answer is None and back.undone and self.node_id in partition.isr):
            return None
        if answer is not None and (covers(answer, log) or past_retention(answer, log)):
            return None
        elsewhere = ", ".join(map(str, others))
        in_sync = f"its partition is in sync on node {elsewhere}, and that leader would truncate it:"
        none = f"no replica of its partition is in sync, and node {elsewhere} may become its leader and truncate it:"
        fact = f"{in_sync if partition.isr else none} {why_not_covered(log, (answer,) if answer is not None else ())}"
        hint = (
            "add --leader-will-truncate if you can lose what the leader does not have; otherwise stop the "
            "other replicas first"
        )
        return refused("assigned", fact, hint)

    def _would_expire(self, back: Back, options: RestoreOptions) -> Reason | None:
        check = self.expires(back)
        if check is None or options.retention_will_delete:
            return None
        return replaced(check, code="policy")

    def _gone_at_leader(self, back: Back, options: RestoreOptions) -> Reason | None:
        """A follower deletes the segments below its leader's log start, and begins anew if it ends below it."""
        copy, answer = back.copy, self.leaders.get(back.dir.key)
        if answer is None or answer.log_start is None or options.retention_will_delete:
            return None
        ends = [*(base for base, _ in copy.segments[1:]), copy.log.log_end]
        sizes = [size for _, size in copy.segments]
        goes = sum(n for n, end in zip(sizes, ends, strict=False) if end is not None and end <= answer.log_start)
        if not goes or self._assigned(back) is None:
            return None
        what = f"all its {goes} bytes" if goes == sum(sizes) else f"{goes} of its {sum(sizes)} bytes"
        fact = f"the log of {answer.where} begins at offset {answer.log_start}, and a follower deletes what is older:"
        hint = (
            "copy the directory elsewhere, or stop the other replicas first; if it may go, add --retention-will-delete"
        )
        return refused("policy", f"{fact} {what}", hint)

    def _would_be_loaded(self, back: Back) -> bool:
        """Whether the broker may keep it under its name. In KRaft mode not what is known not to be assigned to it: that
        is set aside again, or deleted as a whole (`_would_be_deleted`)."""
        if self.zookeeper or self.image is None or self._assigned(back) is not None:
            return True
        return not self.image.complete and back.topic not in self.image.by_name

    def _assigned(self, back: Back) -> PartitionAssignment | None:
        living, number = self.image.by_name.get(back.topic) if self.image is not None else None, back.dir.partition
        partition = living.partitions.get(number) if living is not None and number is not None else None
        return partition if partition is not None and self.node_id in partition.replicas else None


# Kind, topic and partition: a broker starts only with one directory of each, however its name is spelled.
Slot = tuple[Kind, str | None, int | None]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The directories `chosen` to be restored, the inventory (`dirs`), and what is known of them: by the journal
    (`marks`, `removal_intents`; `removed`: what it says of the removal of what was set aside of the same partition) and
    on disk (`copies`, without those that cannot be read)."""

    chosen: Sequence[PartitionDir]
    dirs: Sequence[PartitionDir]
    marks: Mapping[DirKey, Mark] = field(default_factory=dict)
    copies: Mapping[DirKey, CopyRead] = field(default_factory=dict)
    removal_intents: RemovalIntents = field(default_factory=dict)
    removed: Mapping[DirKey, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Back:
    """One that can be restored as far as the directory itself goes: as a partition of `topic`, named `target`, in the
    log dir `home`, where it would displace `there`."""

    dir: PartitionDir
    mark: Mark | None
    copy: CopyRead
    topic: str
    home: str
    target: str
    slot: Slot
    there: PartitionDir | None

    @property
    def undone(self) -> bool:
        """We renamed it and nothing took its place since, so the restore only undoes that."""
        return self.mark is not None and self.there is None


@dataclass(slots=True)
class _Occupied:
    """What is in the log dirs, and what this plan has already restored there."""

    by_slot: dict[Slot, PartitionDir]
    incarnations: dict[tuple[str | None, int | None], PartitionDir]
    taken: set[Slot] = field(default_factory=set)

    @classmethod
    def of(cls, dirs: Sequence[PartitionDir]) -> _Occupied:
        return cls(
            {(d.kind, d.topic, d.partition): d for d in dirs if d.kind in LIVE_KINDS},
            {(d.topic_id, d.partition): d for d in dirs if d.kind is Kind.CURRENT and d.topic_id},
        )


def restorations(
    wanted: Wanted, facts: Facts, owner: Owner, options: RestoreOptions, new_uuid: NewUuid
) -> tuple[list[Proposal], list[Refusal]]:
    """Restore `-stray` and `-delete` dirs under their full current names: proposals, or refusals with the reason."""
    proposals: list[Proposal] = []
    refusals: list[Refusal] = []
    occupied = _Occupied.of(wanted.dirs)
    for d in wanted.chosen:
        back = _way_back(d, wanted, occupied, facts, options.topic)
        if isinstance(back, Reason):
            refusals.append(Refusal.of(d, back))
            continue
        refusal = (
            _collision(back, occupied, replace=options.replace)
            or _conflicts_with_future(back, wanted.dirs)
            or owner.refuses(back, options)
            or _emptied(back, facts.quarantine_dirs.get(back.home), options)
        )
        if refusal is not None:
            refusals.append(Refusal.of(d, refusal))
            continue
        occupied.taken.add(back.slot)
        restore = _restore(back, owner)
        proposals += [restore] if back.there is None else _swap(back, restore, facts, options, new_uuid)
    return proposals, refusals


def _way_back(
    d: PartitionDir, wanted: Wanted, occupied: _Occupied, facts: Facts, given_topic: str | None
) -> Back | Reason:
    """Where `d` goes back to, or why it cannot be restored under any name."""
    mark, copy = wanted.marks.get(d.key), wanted.copies.get(d.key)
    topic, home = full_topic(d, mark) or given_topic, home_of(d, mark, facts)
    refusal = (
        _cannot_restore(d, topic, mark, wanted.removal_intents, wanted.removed.get(d.key))
        or _incomplete(d, copy)
        or _unknown_place(d, home, facts)
    )
    if refusal is not None:
        return refusal
    assert topic is not None and d.partition is not None and copy is not None and home is not None
    target = _previous_name(mark) or dir_names.current_name(topic, d.partition)
    slot: Slot = (dir_names.classify(target).kind, topic, d.partition)
    return Back(d, mark, copy, topic, home, target, slot, occupied.by_slot.get(slot))


def _restore(back: Back, owner: Owner) -> Proposal:
    """With what it costs and what is not known as its reason."""
    d, copy = back.dir, back.copy
    rebuild_all = back.mark is None or not back.mark.intact or d.kind is Kind.DELETE
    read = copy.rebuild_all if rebuild_all else copy.rebuild_some
    cost = f"At its next start the broker reads {read} bytes to rebuild the indexes."
    check = owner.expires(back)
    expires = f"{check.fact[:1].upper()}{check.fact[1:]}." if check is not None else ""
    says = ["Requested.", *owner.says(back), cost, _start_unknown(d, back.mark), expires]
    return Proposal(
        ActionKind.RESTORE,
        d,
        " ".join(filter(None, says)),
        new_name=back.target,
        new_dir=back.home if back.home != d.log_dir else None,
        full_topic=back.topic,
        rebuild_all=rebuild_all,
    )


def _start_unknown(d: PartitionDir, mark: Mark | None) -> str:
    """A remark on what we renamed and the journal does not know: one that is lost, of another state dir, or older."""
    if mark is not None or renamed_at_ms(d.uuid) is None:
        return ""
    return (
        "This journal does not know it, nor its log start offset: records deleted before it may come back"
        " (kafka-delete-records.sh deletes them again)."
    )


def _swap(back: Back, restore: Proposal, facts: Facts, options: RestoreOptions, new_uuid: NewUuid) -> list[Proposal]:
    """It takes the place of `there`, which is checked like a deletion; --replace is the operator's consent."""
    d, there = back.dir, back.there
    assert there is not None and d.partition is not None
    freely = Flags(allow_assigned=True, even_last_copy=options.even_last_copy, include_internal=True)
    quarantine = facts.quarantine_dirs.get(back.home)
    steps: list[Proposal] = []
    if d.kind is Kind.DELETE:
        # With the same UUID, so that it can be found again by the name that was asked for.
        name = dir_names.stray_name(back.topic, d.partition, d.uuid or new_uuid())
        reason = "taken out of the delete queue: the broker would purge whatever is swapped with it"
        first = Proposal(ActionKind.QUARANTINE, d, reason, name, quarantine, full_topic=back.topic, flags=freely)
        steps.append(first)
        aside = replaced(d, log_dir=quarantine or d.log_dir, name=name, kind=Kind.STRAY)
        restore = replaced(restore, dir=aside, new_dir=back.home if quarantine is not None else None)
    coming = restore.dir.key
    reason = f"makes room for {restore.dir.name}"
    away = rename_away(there, is_stray=True, reason=reason, new_uuid=new_uuid, quarantine_dir=quarantine, flags=freely)
    return [*steps, replaced(away, makes_room_for=coming, through=coming), restore]


def _emptied(back: Back, quarantine: str | None, options: RestoreOptions) -> Reason | None:
    """Refuses to displace an only copy (`--even-last-copy`) if the broker would empty it at its next start: a broker
    empties a stray that ends below the log start offset checkpointed for its name (`LogManager.loadLog`)."""
    there, start = back.there, back.copy.log_start_back
    if there is None or quarantine is not None or not options.even_last_copy or start == 0:
        return None
    log = back.copy.in_place
    if log is not None and not log.emptied_by(start):
        return None
    end = "unknown" if log is None or log.log_end is None else f"at {log.log_end}"
    fact = (
        f"with it log start offset {start} comes back, and {there.name}, which would be a stray beside"
        f" it, ends {end}: the broker would empty that at its next start"
    )
    hint = (
        "set cleanup.quarantine_dirs to a directory outside log.dirs on the same file system, or leave "
        "--even-last-copy out where another replica has its records"
    )
    return refused("assigned", fact, hint)


def _previous_name(mark: Mark | None) -> str | None:
    """The current or future name that a directory of ours had before it was marked or set aside."""
    if mark is None or mark.old_name is None:
        return None
    return mark.old_name if dir_names.classify(mark.old_name).kind in LIVE_KINDS else None


def _conflicts_with_future(back: Back, all_dirs: Sequence[PartitionDir]) -> Reason | None:
    """Refuses a current log beside a future one. A future log is truncated to follow the current one, but without a
    current log it may have the most records (unless we set that current log aside and nothing took its place since). No
    broker starts with both in one log dir."""
    kind, *partition = back.slot
    if kind is not Kind.CURRENT:
        return None
    futures = [f for f in all_dirs if f.kind is Kind.FUTURE and [f.topic, f.partition] == partition]
    beside = next((f for f in futures if f.log_dir == back.home), None)
    current = any(f.kind is Kind.CURRENT and [f.topic, f.partition] == partition for f in all_dirs)
    if beside is not None:
        fact = f"{beside.name} is in this log dir: no broker starts with both"
        hint = "restore or keep one of them (logagent delete --future removes the other)"
    elif futures and not back.undone and not current:
        other = futures[0]
        fact = f"{other.log_dir}/{other.name} is there without a current log: it would be truncated to this one"
        hint = "start the broker, which promotes it, or remove it first (logagent delete --future)"
    else:
        return None
    return refused("policy", fact, hint)


def _collision(back: Back, occupied: _Occupied, *, replace: bool) -> Reason | None:
    """Why it cannot get the name `target` in the log dir `home`; None if it can."""
    d, there = back.dir, back.there
    elsewhere = None
    if d.topic_id and back.slot[0] is Kind.CURRENT:
        elsewhere = occupied.incarnations.get((d.topic_id, d.partition))
    if back.slot in occupied.taken:
        fact = f"another directory of this plan is already restored as {back.target}"
        hint = "restore one of them"
    elif elsewhere is not None and elsewhere is not there:
        fact = f"this incarnation is current as {elsewhere.log_dir}/{elsewhere.name}"
        hint = "a broker does not start with one partition twice"
    elif there is None:
        return None
    elif there.log_dir != back.home:
        fact = f"{there.name} exists in {there.log_dir}"
        hint = "a broker does not start with one partition twice"
    elif not replace:
        fact = f"{there.name} exists in this log dir"
        hint = "add --replace to set that directory aside"
    else:
        return None
    return refused("policy", fact, hint)
