"""Possible restores of `-stray` and `-delete` dirs, before any guard has checked them.

With `--replace` the partition is current at every moment: a `-delete` dir is set aside first (a broker would purge what
gets its name), then swapped with the directory that has the current name, which then gets a new stray name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replaced

from logagent.model.facts import Facts
from logagent.model.naming import dir_names
from logagent.model.naming.rename_uuids import renamed_at_ms
from logagent.model.planning.owner import CopyLook, Owner, RestoreOptions
from logagent.model.planning.plan import Flags, Proposal, Refusal
from logagent.model.planning.proposals import NewUuid, rename_away
from logagent.model.planning.queue import Mark, full_topic
from logagent.model.planning.restorable import home_of, not_restorable
from logagent.model.planning.started import NO_REMOVALS, RemovalIntents, why_not_whole
from logagent.model.records import ActionKind, Kind, PartitionDir

# Kind, topic and partition: a broker starts only with one directory of each, however its name is spelled.
Slot = tuple[Kind, str | None, int | None]


@dataclass(slots=True)
class _Occupied:
    """What is in the log dirs, and what this plan has already restored there."""

    by_slot: dict[Slot, PartitionDir]
    incarnations: dict[tuple[str | None, int | None], PartitionDir]
    taken: set[Slot] = field(default_factory=set)

    @classmethod
    def of(cls, dirs: Sequence[PartitionDir]) -> _Occupied:
        return cls(
            {(d.kind, d.topic, d.partition): d for d in dirs if d.kind in (Kind.CURRENT, Kind.FUTURE)},
            {(d.topic_id, d.partition): d for d in dirs if d.kind is Kind.CURRENT and d.topic_id},
        )


def restorations(
    chosen: Iterable[PartitionDir],
    all_dirs: Sequence[PartitionDir],
    facts: Facts,
    marks: Mapping[tuple[str, str], Mark],
    copies: Mapping[tuple[str, str], CopyLook],
    owner: Owner,
    options: RestoreOptions,
    *,
    new_uuid: NewUuid,
    removal_intents: RemovalIntents = NO_REMOVALS,
) -> tuple[list[Proposal], list[Refusal]]:
    """Restore `-stray` and `-delete` dirs under their full current names: proposals, or refusals with the reason.

    copies: what was found on disk in each of them. owner: who owns their partitions. removal_intents: the removals of
    them that this journal knows.
    """
    proposals: list[Proposal] = []
    refusals: list[Refusal] = []
    occupied = _Occupied.of(all_dirs)
    for d in chosen:
        key = (d.log_dir, d.name)
        mark = marks.get(key)
        name = full_topic(d, mark) or options.topic
        home = home_of(d, mark, facts)
        copy = copies.get(key)
        bit = mark.files_with_bit if mark is not None else None
        not_whole = why_not_whole(d, removal_intents, files_with_bit=bit)
        refusal = not_restorable(d, name, copy, home, facts, not_whole)
        if refusal is not None:
            refusals.append(refusal)
            continue
        assert name is not None and d.partition is not None and copy is not None and home is not None
        target = _previous_name(mark) or dir_names.current_name(name, d.partition)
        slot: Slot = (dir_names.classify(target).kind, name, d.partition)
        there = occupied.by_slot.get(slot)
        undone = mark is not None and there is None
        refusal = (
            _collision(d, target, slot, occupied, home=home, replace=options.replace)
            or _conflicts_with_future(d, slot, all_dirs, home=home, undone=undone)
            or owner.refuses(d, name, there, copy, options, undone=undone)
            or _emptied(d, there, copy, facts.quarantine_dirs.get(home), options)
        )
        if refusal is not None:
            refusals.append(refusal)
            continue
        occupied.taken.add(slot)
        rebuild_all = mark is None or not mark.intact or d.kind is Kind.DELETE
        cost = _rebuild_cost(copy.rebuild_all if rebuild_all else copy.rebuild_some)
        check = owner.expires(d, name, copy)
        expires = f"; {check.fact}" if check is not None else ""
        reason = f"asked for{owner.says(d, name)}; {cost}{_start_unknown(d, mark)}{expires}"
        back = Proposal(
            ActionKind.RESTORE,
            d,
            reason,
            new_name=target,
            new_dir=home if home != d.log_dir else None,
            full_topic=name,
            rebuild_all=rebuild_all,
        )
        proposals += [back] if there is None else _swap(there, back, home, facts, options, new_uuid)
    return proposals, refusals


def _rebuild_cost(count: int) -> str:
    return f"the broker reads {count} bytes at its next start, to rebuild its indexes"


def _start_unknown(d: PartitionDir, mark: Mark | None) -> str:
    """A remark on what we renamed and the journal does not know: one that is lost, of another state dir, or older."""
    if mark is not None or renamed_at_ms(d.uuid) is None:
        return ""
    return (
        "; this journal does not know it, nor its log start offset: records deleted before it may come back "
        "(kafka-delete-records.sh deletes them again)"
    )


def _swap(
    there: PartitionDir, back: Proposal, home: str, facts: Facts, options: RestoreOptions, new_uuid: NewUuid
) -> list[Proposal]:
    """`back` takes the place of `there`, which is checked like a deletion; --replace is the operator's consent."""
    freely = Flags(allow_assigned=True, even_last_copy=options.even_last_copy, include_internal=True)
    quarantine = facts.quarantine_dirs.get(home)
    steps: list[Proposal] = []
    if back.dir.kind is Kind.DELETE:
        assert back.full_topic is not None and back.dir.partition is not None
        # With the same UUID, so that it can be found again by the name that was asked for.
        name = dir_names.stray_name(back.full_topic, back.dir.partition, back.dir.uuid or new_uuid())
        reason = "taken out of the delete queue: the broker would purge whatever is swapped with it"
        first = Proposal(
            ActionKind.QUARANTINE, back.dir, reason, name, quarantine, full_topic=back.full_topic, flags=freely
        )
        steps.append(first)
        aside = replaced(back.dir, log_dir=quarantine or back.dir.log_dir, name=name, kind=Kind.STRAY)
        back = replaced(back, dir=aside, new_dir=home if quarantine is not None else None)
    coming = (back.dir.log_dir, back.dir.name)
    reason = f"makes room for {back.dir.name}"
    away = rename_away(there, is_stray=True, reason=reason, new_uuid=new_uuid, quarantine_dir=quarantine, flags=freely)
    return [*steps, replaced(away, makes_room_for=coming, through=coming), back]


def _emptied(
    d: PartitionDir, there: PartitionDir | None, copy: CopyLook, quarantine: str | None, options: RestoreOptions
) -> Refusal | None:
    """Refuses to displace an only copy (`--even-last-copy`) if the broker would empty it at its next start: a broker
    empties a stray that ends below the log start offset checkpointed for its name (`LogManager.loadLog`)."""
    if there is None or quarantine is not None or not options.even_last_copy or copy.log_start_back == 0:
        return None
    log = copy.standing
    if log is not None and not log.emptied_by(copy.log_start_back):
        return None
    end = "unknown" if log is None or log.log_end is None else f"at {log.log_end}"
    fact = f"with it log start offset {copy.log_start_back} comes back, and {there.name}, which would be a stray beside"
    fact += f" it, ends {end}: the broker would empty that at its next start"
    hint = (
        "set cleanup.quarantine_dirs to a directory outside log.dirs on the same file system, or leave "
        "--even-last-copy out where another replica has its records"
    )
    return Refusal(d.log_dir, d.name, "assigned", fact, hint, d.bytes)


def _previous_name(mark: Mark | None) -> str | None:
    """The current or future name that a directory of ours had before it was marked or set aside."""
    if mark is None or mark.old_name is None:
        return None
    return mark.old_name if dir_names.classify(mark.old_name).kind in (Kind.CURRENT, Kind.FUTURE) else None


def _conflicts_with_future(
    d: PartitionDir, slot: Slot, all_dirs: Sequence[PartitionDir], *, home: str, undone: bool
) -> Refusal | None:
    """Refuses a current log beside a future one. A future log is truncated to follow the current one, but without a
    current log it may have the most records (unless we set that current log aside and nothing took its place since). No
    broker starts with both in one log dir."""
    kind, *partition = slot
    if kind is not Kind.CURRENT:
        return None
    futures = [f for f in all_dirs if f.kind is Kind.FUTURE and [f.topic, f.partition] == partition]
    beside = next((f for f in futures if f.log_dir == home), None)
    current = any(f.kind is Kind.CURRENT and [f.topic, f.partition] == partition for f in all_dirs)
    if beside is not None:
        fact = f"{beside.name} is in this log dir: no broker starts with both"
        hint = "restore or keep one of them (logagent delete --future removes the other)"
    elif futures and not undone and not current:
        other = futures[0]
        fact = f"{other.log_dir}/{other.name} is there without a current log: it would be truncated to this one"
        hint = "start the broker, which promotes it, or remove it first (logagent delete --future)"
    else:
        return None
    return Refusal(d.log_dir, d.name, "policy", fact, hint, d.bytes)


def _collision(
    d: PartitionDir, target: str, slot: Slot, occupied: _Occupied, *, home: str, replace: bool
) -> Refusal | None:
    """Why `d` cannot get the name `target` in the log dir `home`; None if it can."""
    there = occupied.by_slot.get(slot)
    elsewhere = None
    if d.topic_id and slot[0] is Kind.CURRENT:
        elsewhere = occupied.incarnations.get((d.topic_id, d.partition))
    if slot in occupied.taken:
        fact, hint = f"another directory of this plan is already restored as {target}", "restore one of them"
    elif elsewhere is not None and elsewhere is not there:
        fact = f"this incarnation is current as {elsewhere.log_dir}/{elsewhere.name}"
        hint = "a broker does not start with one partition twice"
    elif there is None:
        return None
    elif there.log_dir != home:
        fact = f"{there.name} exists in {there.log_dir}"
        hint = "a broker does not start with one partition twice"
    elif not replace:
        fact = f"{there.name} exists in this log dir"
        hint = "add --replace to set that directory aside"
    else:
        return None
    return Refusal(d.log_dir, d.name, "policy", fact, hint, d.bytes)
