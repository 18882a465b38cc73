"""What could be restored, before any guard has seen it: `-stray` and `-delete` dirs on their way back.

With `--replace` the partition is current at every moment: a `-delete` dir is set aside first (a broker would purge what
gets its name), then it changes places with what stands under the name, and that gets a stray name of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replaced

from logagent.model.facts import Facts
from logagent.model.naming import names
from logagent.model.planning.owner import Asked, CopyLook, Owner
from logagent.model.planning.plan import Flags, Proposal, Refusal
from logagent.model.planning.proposals import NewUuid, rename_away
from logagent.model.planning.queue import Mark, full_topic
from logagent.model.records import ActionKind, Kind, PartitionDir

# A kind with the topic and partition: a broker starts with one directory of each, however it is spelled.
Slot = tuple[Kind, str | None, int | None]


@dataclass(slots=True)
class _Standing:
    """What stands in the log dirs, and what this plan has already put there."""

    by_slot: dict[Slot, PartitionDir]
    incarnations: dict[tuple[str | None, int | None], PartitionDir]
    taken: set[Slot] = field(default_factory=set)

    @classmethod
    def of(cls, dirs: Sequence[PartitionDir]) -> _Standing:
        return cls(
            {(d.kind, d.topic, d.partition): d for d in dirs if d.kind in (Kind.CURRENT, Kind.FUTURE)},
            {(d.topic_id, d.partition): d for d in dirs if d.kind is Kind.CURRENT and d.topic_id},
        )


def restorations(
    chosen: Iterable[PartitionDir],
    all_dirs: Sequence[PartitionDir],
    facts: Facts,
    marks: Mapping[tuple[str, str], Mark],
    begun: frozenset[tuple[str, str]],
    copies: Mapping[tuple[str, str], CopyLook],
    owner: Owner,
    asked: Asked,
    *,
    new_uuid: NewUuid,
) -> tuple[list[Proposal], list[Refusal]]:
    """`-stray` and `-delete` dirs back to their full current names, each one or a refusal with its reason.

    copies: what the disk says of each of them. owner: whose they are.
    """
    proposals: list[Proposal] = []
    refusals: list[Refusal] = []
    standing = _Standing.of(all_dirs)
    for d in chosen:
        key = (d.log_dir, d.name)
        mark = marks.get(key)
        name = full_topic(d, mark) or asked.topic
        came_from = mark.came_from if mark is not None else None
        begun_here = d.removal_begun or key in begun
        copy = copies.get(key)
        refusal = (
            _cannot_restore(d, name, begun=begun_here)
            or _incomplete(d, copy)
            or _homeless(d, came_from, facts)
            or _not_all_seen(d, facts)
        )
        if refusal is not None:
            refusals.append(refusal)
            continue
        assert name is not None and d.partition is not None and copy is not None
        target = _name_before(mark) or names.current_name(name, d.partition)
        slot: Slot = (names.classify(target).kind, name, d.partition)
        home = came_from or d.log_dir
        there = standing.by_slot.get(slot)
        refusal = _collision(d, target, slot, standing, home=home, replace=asked.replace) or owner.refuses(
            d, name, there, copy, asked, undone=mark is not None and there is None
        )
        if refusal is not None:
            refusals.append(refusal)
            continue
        standing.taken.add(slot)
        rebuild_all = mark is None or not mark.intact or d.kind is Kind.DELETE
        reason = f"asked for{owner.says(d, name)}; {_reads(copy.rebuild_all if rebuild_all else copy.rebuild_some)}"
        back = Proposal(
            ActionKind.RESTORE, d, reason, new_name=target, new_dir=came_from, full_topic=name, rebuild_all=rebuild_all
        )
        proposals += [back] if there is None else _changing_places(there, back, home, facts, asked, new_uuid)
    return proposals, refusals


def _reads(count: int) -> str:
    return f"the broker reads {count} bytes at its next start, to rebuild its indexes"


def _incomplete(d: PartitionDir, copy: CopyLook | None) -> Refusal | None:
    if d.error is not None or copy is None:
        fact = f"it cannot be trusted: {d.error or 'it cannot be read'}"
        return Refusal(d.log_dir, d.name, "inside", fact, "look at it by hand; logagent leaves it alone", d.bytes)
    if copy.without_log:
        fact = f"{copy.without_log[0]} is there, and its .log is not: a removal of it had begun"
        return Refusal(d.log_dir, d.name, "journal", fact, "the data comes from a replica", d.bytes)
    return None


def _not_all_seen(d: PartitionDir, facts: Facts) -> Refusal | None:
    """The partition may be current in a log dir that is offline or was not looked at."""
    hidden = facts.not_seen()
    if hidden is not None:
        fact = f"log dir {hidden[0]} {hidden[1]}: the partition may be current there"
        return Refusal(d.log_dir, d.name, "online", fact, "mend that log dir first", d.bytes)
    if facts.left_out:
        fact = f"log dir {facts.left_out[0]} was not looked at: the partition may be current there"
        hint = "name all log dirs of the broker with --log-dir, or none"
        return Refusal(d.log_dir, d.name, "policy", fact, hint, d.bytes)
    return None


def _changing_places(
    there: PartitionDir, back: Proposal, home: str, facts: Facts, asked: Asked, new_uuid: NewUuid
) -> list[Proposal]:
    """`back` takes the place of `there`, which is asked like a deletion; --replace is the operator's word for it."""
    freely = Flags(allow_assigned=True, even_last_copy=asked.even_last_copy, include_internal=True)
    quarantine = facts.quarantine_dirs.get(home)
    steps: list[Proposal] = []
    if back.dir.kind is Kind.DELETE:
        assert back.full_topic is not None and back.dir.partition is not None
        # Under the same UUID, so that it is found again by the name that was asked for.
        name = names.stray_name(back.full_topic, back.dir.partition, back.dir.uuid or new_uuid())
        reason = "taken out of the delete queue: the broker would purge what changes places with it"
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


def _name_before(mark: Mark | None) -> str | None:
    """The current or future name that a directory of ours had before it was marked or set aside."""
    if mark is None or mark.old_name is None:
        return None
    return mark.old_name if names.classify(mark.old_name).kind in (Kind.CURRENT, Kind.FUTURE) else None


def _cannot_restore(d: PartitionDir, name: str | None, *, begun: bool) -> Refusal | None:
    if d.kind not in (Kind.STRAY, Kind.DELETE) or d.partition is None:
        fact, hint = f"it is a {d.kind.value} dir", "only -stray and -delete dirs can be restored"
        return Refusal(d.log_dir, d.name, "policy", fact, hint, d.bytes)
    if begun:
        fact = "its removal has begun: some of its files may be gone"
        return Refusal(
            d.log_dir, d.name, "journal", fact, "let the removal finish; the data comes from a replica", d.bytes
        )
    if d.segments == 0:
        fact = "no segment is left in it"
        return Refusal(d.log_dir, d.name, "policy", fact, "there is nothing to restore", d.bytes)
    if name is None:
        fact = f"its name was cut and the journal does not know the full topic ({d.topic}…)"
        return Refusal(d.log_dir, d.name, "policy", fact, "name the topic with --topic-name", d.bytes)
    if d.topic is None or not name.startswith(d.topic):
        fact = f"topic {name} does not begin with {d.topic}"
        return Refusal(d.log_dir, d.name, "policy", fact, "check --topic-name", d.bytes)
    return None


def _homeless(d: PartitionDir, came_from: str | None, facts: Facts) -> Refusal | None:
    where = facts.log_dirs.get(d.log_dir)
    if where is None or not where.quarantine or came_from is not None:
        return None
    fact = "the journal does not know which log dir it was quarantined from"
    return Refusal(d.log_dir, d.name, "journal", fact, "move it back by hand while the broker is stopped", d.bytes)


def _collision(
    d: PartitionDir, target: str, slot: Slot, standing: _Standing, *, home: str, replace: bool
) -> Refusal | None:
    """Why `target` is not free for `d`, which goes back to the log dir `home`."""
    there = standing.by_slot.get(slot)
    elsewhere = None
    if d.topic_id and slot[0] is Kind.CURRENT:
        elsewhere = standing.incarnations.get((d.topic_id, d.partition))
    if slot in standing.taken:
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
        hint = "add --replace to set aside what stands there"
    else:
        return None
    return Refusal(d.log_dir, d.name, "policy", fact, hint, d.bytes)
