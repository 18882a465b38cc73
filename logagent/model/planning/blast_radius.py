"""Guard "blast-radius": how much of the host a plan takes away, with what was taken within the last 24 hours.

It concerns a plan as a whole, so it stands apart from the guards of single directories.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from logagent.model.facts import Facts, RecentAction
from logagent.model.planning.plan import Proposal, Refusal, plan_id
from logagent.model.records import ActionKind, Identity, Kind, PartitionDir

Key = tuple[Identity, str | None, int | None]
_PARTITION_KINDS = (Kind.CURRENT, Kind.FUTURE, Kind.STRAY, Kind.DELETE)


class Taken:
    """The directories of `recent`, by what tells them apart over all their names and places.

    A directory keeps its inode over renames; the topic id and the partition tell it from the next one that gets that
    inode. A removal that was interrupted may have taken the topic id: then inode and partition have to do. sizes: the
    largest that was seen of each. approved: those that an operator allowed, and that did not come back since: an
    approval ends with a restore.
    """

    def __init__(self, recent: Iterable[RecentAction]) -> None:
        rows = tuple(recent)
        self._with_id = {(r.identity, r.partition): r.topic_id for r in rows if r.topic_id is not None}
        self.sizes: dict[Key, int] = {}
        self.approved: set[Key] = set()
        for r in rows:
            key = self._key(r.identity, r.topic_id, r.partition)
            if r.restored:
                self.approved.discard(key)
                continue
            self.sizes[key] = max(r.bytes, self.sizes.get(key, 0))
            if r.approved:
                self.approved.add(key)

    def key(self, directory: PartitionDir) -> Key:
        """By what a directory that is still there is among them."""
        return self._key(directory.identity, directory.topic_id, directory.partition)

    def _key(self, identity: Identity, topic_id: str | None, partition: int | None) -> Key:
        if topic_id is None:
            topic_id = self._with_id.get((identity, partition))
        return (identity, topic_id, partition)


def had(dirs: Iterable[PartitionDir], taken: Taken) -> tuple[int, int]:
    """Partition dirs and bytes that the host had within 24 hours: those among `dirs`, and those taken since.

    One that was removed in part counts whole, as it does in the blast radius.
    """
    gone = dict(taken.sizes)
    count = size = 0
    for d in dirs:
        if d.kind in _PARTITION_KINDS:
            count += 1
            size += max(d.bytes, gone.pop(taken.key(d), 0)) if gone else d.bytes
    return count + len(gone), size + sum(gone.values())


@dataclass(frozen=True, slots=True)
class BlastRadius:
    """The limits over 24 hours: `max_dirs` directories, `max_fraction` of the host's partition dirs or bytes."""

    max_dirs: int
    max_fraction: float


def blast_radius(permitted: Sequence[Proposal], facts: Facts, limits: BlastRadius) -> Refusal | None:
    """Why the plan as a whole is refused; None where it is within `limits`.

    A directory counts once, whatever was done to it (`Taken`), and not at all once an operator has approved it: for
    what follows from that. One that bears its own name (again, however it came back) counts, whatever was approved of
    it before. One directory is always allowed.
    """
    counted = [p for p in permitted if p.action is not ActionKind.RESTORE and not p.approved and not p.on_the_way_back]
    if not counted:
        return None
    taken = Taken(facts.recent)
    approved = taken.approved - {taken.key(p.dir) for p in counted if p.dir.kind in (Kind.CURRENT, Kind.FUTURE)}
    sizes = {key: size for key, size in taken.sizes.items() if key not in approved}
    for p in counted:
        key = taken.key(p.dir)
        if key not in approved:
            sizes[key] = max(p.dir.bytes, sizes.get(key, 0))
    fact = _over_limit(len(sizes), sum(sizes.values()), facts, limits) or _leaves_nothing(counted, facts)
    if fact is None:
        return None
    hint = f"read the plan; if all of it is meant, run it again with --execute --approve {plan_id(permitted)}"
    return Refusal("", "", "blast-radius", fact, hint, sum(p.dir.bytes for p in permitted))


def _over_limit(dirs: int, size: int, facts: Facts, limits: BlastRadius) -> str | None:
    if dirs <= 1:
        return None
    if dirs > limits.max_dirs:
        return f"{dirs} directories within 24 hours are more than cleanup.max_dirs = {limits.max_dirs}"
    most_dirs = limits.max_fraction * facts.partition_dirs
    if dirs > most_dirs:
        return (
            f"{dirs} of the host's {facts.partition_dirs} partition dirs within 24 hours are more than"
            f" cleanup.max_fraction = {limits.max_fraction:g}"
        )
    if size > limits.max_fraction * facts.partition_bytes:
        return (
            f"{size} of the host's {facts.partition_bytes} bytes within 24 hours are more than"
            f" cleanup.max_fraction = {limits.max_fraction:g}"
        )
    return None


def _leaves_nothing(counted: Sequence[Proposal], facts: Facts) -> str | None:
    taken = {(p.dir.log_dir, p.dir.name) for p in counted if p.dir.kind in (Kind.CURRENT, Kind.FUTURE)}
    if taken and all(key in taken for key in facts.assigned_dirs):
        return "it would leave this host without a single assigned partition dir"
    return None
