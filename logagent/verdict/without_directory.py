"""What is assigned to this node and has no directory on it, and the log dirs that its configuration no longer names.
Decides without I/O.

A start makes such a partition anew, empty, in the log dirs that are named, and says nothing of it. With other replicas
in sync it is copied again; where this node is the only one, its records are gone, unless what was set aside or removed
by hand can still be brought back, or the log dir that has them is put back into `log.dirs` before.

One image does not show that it is missing: what it has may have been deleted before the inventory, or made after it.
What was assigned before the inventory and after it, is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from logagent.base.records import DirKey, Kind, PartitionDir, Reason
from logagent.kafka.image import AssignmentImage, Source

Partition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class WithoutDirectory:
    """`only_copy`: no other replica is in sync, None if the source does not say. `aside`: where a directory of its
    topic id was set aside or marked, `left`: which of the two (set aside, if there are both). `directory_id`: of the
    log dir that it is assigned to, None if that is unknown. `future`: its `-future` directory, which may lack records
    that only the current one had."""

    topic: str
    partition: int
    topic_id: str | None
    only_copy: bool | None
    aside: str | None = None
    directory_id: str | None = None
    left: Kind | None = None
    future: DirKey | None = None

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class OtherLogDir:
    """A log dir that this broker had and its configuration does not name. `known_by`: who says that it had it.
    `directory_id`: None if that is unknown. `holds`: its current partition directories with their topic ids (None: not
    read, or none there); None as a whole: it cannot be inspected. `remembered`: the broker's configuration named it,
    and nobody has taken it back since. `serves`: the partitions that the running broker says it has there."""

    path: str
    known_by: str
    directory_id: str | None = None
    holds: Mapping[Partition, str | None] | None = None
    remembered: bool = True
    serves: Collection[Partition] = ()

    def has(self, w: WithoutDirectory) -> bool:
        """Whether what is known says that this partition is in it."""
        if w.directory_id is not None and w.directory_id == self.directory_id:
            return True
        if (w.topic, w.partition) in self.serves:
            return True
        topic_id = (self.holds or {}).get((w.topic, w.partition))
        return topic_id is not None and topic_id == w.topic_id

    def may_have(self, w: WithoutDirectory) -> bool:
        """Whether nothing says that it is elsewhere."""
        if w.directory_id is not None and self.directory_id is not None:
            return w.directory_id == self.directory_id
        return self.holds is None or ((w.topic, w.partition) in self.holds and not self._of_another_id(w))

    def _of_another_id(self, w: WithoutDirectory) -> bool:
        topic_id = (self.holds or {}).get((w.topic, w.partition))
        return None not in (topic_id, w.topic_id) and topic_id != w.topic_id


@dataclass(frozen=True, slots=True)
class LeftLogDir:
    """A log dir that is not in `log.dirs` any more, with partitions that have no directory elsewhere here. `path` or
    `directory_id` may be unknown. `partitions`: those that are assigned to it or lie in it; `held`: names of those that
    lie in it where no assignments say whether they are still this node's. `known`: it is known, not only possible, that
    a start makes them anew."""

    path: str | None
    directory_id: str | None
    known_by: str
    known: bool
    partitions: tuple[WithoutDirectory, ...] = ()
    held: tuple[str, ...] = ()

    @property
    def only_copies(self) -> tuple[WithoutDirectory, ...]:
        """Those of which no other replica is in sync, as far as is known."""
        return tuple(w for w in self.partitions if w.only_copy is not False)

    @property
    def name(self) -> str:
        return self.path if self.path is not None else f"the log dir with directory.id {self.directory_id}"


@dataclass(frozen=True, slots=True)
class Missing:
    """What a start would have to make anew. `here`: in the log dirs that are named, and not known to be elsewhere.
    `left`: what is, or may be, in log dirs that `log.dirs` no longer names. `hidden`: what may be in one of `unseen`,
    which could not be read or were not inspected; a start makes nothing anew while a log dir is offline. `promoted`:
    what has its `-future` directory in the log dir that it is assigned to, which brokers from 3.7.1 on take for the
    current one (KAFKA-16082). `doubt`: why it is not known which log dirs this broker had. `unknown`: why it could not
    be compared with what is assigned now, if so."""

    here: tuple[WithoutDirectory, ...] = ()
    left: tuple[LeftLogDir, ...] = ()
    hidden: tuple[WithoutDirectory, ...] = ()
    unseen: tuple[str, ...] = ()
    promoted: tuple[WithoutDirectory, ...] = ()
    doubt: str | None = None
    unknown: str | None = None

    @property
    def all(self) -> list[WithoutDirectory]:
        every = {*self.here, *self.hidden, *(w for log_dir in self.left for w in log_dir.partitions)}
        return sorted(every, key=lambda w: (w.topic, w.partition))


NOTHING_MISSING = Missing()
NO_ASSIGNMENTS = "no assignments were read"
_SHOWN = 5


def named(partitions: Sequence[object]) -> str:
    """`3 partitions (a-0, a-1, b-0) are`, as the beginning of a sentence."""
    names = ", ".join(map(str, partitions[:_SHOWN])) + (", …" if len(partitions) > _SHOWN else "")
    return f"1 partition ({names}) is" if len(partitions) == 1 else f"{len(partitions)} partitions ({names}) are"


def in_words(left: LeftLogDir) -> Reason:
    """What a start would do, and the two ways out."""
    back = "put it back into log.dirs before the broker starts"
    not_named = f"log.dirs does not name {left.name} any more (known by {left.known_by})"
    if not left.partitions:
        inside = f"{named(left.held)} in it" if left.held else "it cannot be inspected"
        says = f"{not_named}, {inside}, and no assignments say whether a start would make partitions anew, empty"
        hint = f"{back}; or, if the broker was meant to lose it, restart logagent (systemctl restart logagent)"
        return Reason(says, hint)
    what = f"{named(left.partitions)} {'assigned to it' if left.known else 'assigned to this broker and may be in it'}"
    loss = "each has another replica in sync, from which it is copied again"
    if left.only_copies:
        count = "none" if left.only_copies == left.partitions else f"{len(left.only_copies)} of them not"
        loss = f"{count} known to have another replica in sync: their records are lost to the cluster"
    says = f"{not_named}, and {what}: a start makes them anew, empty, in the other log dirs ({loss}); once it is back"
    says += " they are duplicates, with which no broker starts"
    out = "start without it once what is in it is elsewhere: another replica of each is in sync (kafka-topics.sh"
    out += " --describe)"
    return Reason(says, f"{back}; or {out}")


def as_told(missing: Missing) -> list[str]:
    """A sentence for each log dir that may have what a start makes anew."""
    told = [f"{why.fact}; {why.hint}" for why in map(in_words, missing.left)]
    return [*told, *([missing.doubt] if missing.doubt is not None else [])]


@dataclass(frozen=True, slots=True)
class NamedLogDirs:
    """The log dirs that a start would use. `ids`: the directory ids of those that could be read, by path; `unseen`:
    those that could not, or were not inspected. `configured`: a configuration names them, not the command that asks.
    `sure`: the assignments are our cluster's, and no older than what a start goes by. `unknown`: why there are none, or
    none that count, if so."""

    ids: Mapping[str, str] = field(default_factory=dict)
    unseen: tuple[str, ...] = ()
    configured: bool = True
    sure: bool = True
    doubt: str | None = None
    unknown: str | None = None


def without_directory(
    image: AssignmentImage | None, node_id: int | None, dirs: Iterable[PartitionDir]
) -> list[WithoutDirectory]:
    """Those of `image` of which none of `dirs`, which are all directories of the host, is the current one. One that is
    marked for deletion or set aside is not loaded, and a `-future` one alone is no replica."""
    if image is None or node_id is None:
        return []
    there = _Directories(dirs)
    found = []
    for name, topic in sorted(image.by_name.items()):
        for number, partition in sorted(topic.partitions.items()):
            one = name, topic.topic_id, number
            if node_id not in partition.replicas or there.current.find(*one) is not None:
                continue
            only = partition.only_in_sync(node_id)
            where, kind = there.aside.get((topic.topic_id, number), (None, None))
            directory_id = partition.directory_of(node_id)
            future = there.futures.find(*one)
            found.append(WithoutDirectory(name, number, topic.topic_id, only, where, directory_id, kind, future))
    return found


class _Directories:
    """What directories may be loaded as, and where those are that are not loaded."""

    def __init__(self, dirs: Iterable[PartitionDir]) -> None:
        self.aside: dict[tuple[str | None, int | None], tuple[str, Kind]] = {}
        self.current, self.futures = _Loaded(), _Loaded()
        for d in dirs:
            if d.kind is Kind.CURRENT:
                self.current.add(d)
            elif d.kind is Kind.FUTURE:
                self.futures.add(d)
            elif d.kind in (Kind.STRAY, Kind.DELETE) and d.topic_id is not None:
                key = d.topic_id, d.partition
                if key not in self.aside or d.kind is Kind.STRAY:
                    self.aside[key] = f"{d.log_dir}/{d.name}", d.kind


class _Loaded:
    def __init__(self) -> None:
        self._named: dict[tuple[str | None, int | None], list[PartitionDir]] = {}
        self._cut_ids: dict[tuple[str, int | None], PartitionDir] = {}
        self._cut: dict[int | None, list[PartitionDir]] = {}

    def add(self, d: PartitionDir) -> None:
        self._named.setdefault((d.topic, d.partition), []).append(d)
        if d.truncated and d.topic_id is not None:
            self._cut_ids[d.topic_id, d.partition] = d
        elif d.truncated and d.topic is not None:
            self._cut.setdefault(d.partition, []).append(d)

    def find(self, name: str, topic_id: str | None, partition: int) -> DirKey | None:
        """One that is of this partition, or may be: one whose id is not known may be of any topic with its name, and
        with a name that was cut at 255 bytes (of a move between log dirs), of any that begins with it."""
        for d in self._named.get((name, partition), ()):
            if None in (d.topic_id, topic_id) or d.topic_id == topic_id:
                return d.key
        if topic_id is not None and (topic_id, partition) in self._cut_ids:
            return self._cut_ids[topic_id, partition].key
        return next((d.key for d in self._cut.get(partition, ()) if name.startswith(d.topic or "")), None)


def can_enclose(before: AssignmentImage | None, after: AssignmentImage | None) -> bool:
    """Whether what both have was assigned all the time between them: they are of one source and one lineage, none is
    known to lack something, and both prove who is a replica. A file that was exported once says nothing of now."""
    if before is None or after is None or before.source is Source.FILE:
        return False
    if any(image.incomplete_because or image.untested_because for image in (before, after)):
        return False
    if (before.source, before.cluster_id) != (after.source, after.cluster_id) or before.at_ms > after.at_ms:
        return False
    if before.source is not Source.KRAFT_LOG:
        return True
    start, end = before.offset, after.offset
    return (
        start is not None
        and end is not None
        and start <= end
        and (before.leader_epoch or 0) <= (after.leader_epoch or 0)
    )


def still_assigned(found: Iterable[WithoutDirectory], after: AssignmentImage, node_id: int) -> list[WithoutDirectory]:
    """Those that a later image assigns to the node, too."""

    def is_there(one: WithoutDirectory) -> bool:
        topic = after.by_name.get(one.topic)
        partition = (
            topic.partitions.get(one.partition) if topic is not None and topic.topic_id == one.topic_id else None
        )
        return partition is not None and node_id in partition.replicas

    return [one for one in found if is_there(one)]


def sort_missing(
    missing: Sequence[WithoutDirectory] | None, others: Sequence[OtherLogDir], named: NamedLogDirs
) -> Missing:
    """Where the directories of `missing` (None: there are no assignments) are or may be; `others`: log dirs that are
    not named. What is known to be in one of them, or assigned to an id that no named log dir has, is made anew; a
    doubt adds to what is said, and takes nothing from it: assignments that do not count say less than none at all."""
    if missing is None:
        left = tuple(_without_assignments(others))
        return Missing(left=left, unseen=named.unseen, doubt=named.doubt, unknown=named.unknown or NO_ASSIGNMENTS)
    places = _Places(others, named)
    for w in missing:
        places.put(w)
    return places.result()


def _without_assignments(others: Iterable[OtherLogDir]) -> Iterable[LeftLogDir]:
    for o in others:
        held = tuple(f"{topic}-{partition}" for topic, partition in sorted(o.holds or {}))
        if held or (o.holds is None and o.remembered):
            yield LeftLogDir(o.path, o.directory_id, o.known_by, False, held=held)


@dataclass
class _Places:
    others: Sequence[OtherLogDir]
    named: NamedLogDirs
    here: list[WithoutDirectory] = field(default_factory=list)
    hidden: list[WithoutDirectory] = field(default_factory=list)
    promoted: list[WithoutDirectory] = field(default_factory=list)
    known: dict[str, list[WithoutDirectory]] = field(default_factory=dict)
    possible: dict[str, list[WithoutDirectory]] = field(default_factory=dict)
    by_id: dict[str, list[WithoutDirectory]] = field(default_factory=dict)

    def put(self, w: WithoutDirectory) -> None:
        has = next((o for o in self.others if o.has(w)), None)
        if has is not None:
            self.known.setdefault(has.path, []).append(w)
        elif w.future is not None and w.directory_id == self.named.ids.get(w.future.log_dir, ""):
            self.promoted.append(w)
        elif w.directory_id in self.named.ids.values():
            self.here.append(w)
        else:
            self._unplaced(w)

    def _unplaced(self, w: WithoutDirectory) -> None:
        may = next((o for o in self.others if o.may_have(w)), None)
        if self.named.unseen or (w.directory_id is not None and not self.named.configured):
            self.hidden.append(w)
        elif w.directory_id is not None:
            self.by_id.setdefault(w.directory_id, []).append(w)
        elif may is None:
            self.here.append(w)
        if may is not None and (w.directory_id is None or self.hidden):
            self.possible.setdefault(may.path, []).append(w)

    def result(self) -> Missing:
        left = []
        for o in self.others:
            for found, known in ((self.known, self.named.sure), (self.possible, False)):
                if o.path in found:
                    left.append(LeftLogDir(o.path, o.directory_id, o.known_by, known, tuple(found[o.path])))
        by = "the assignments"
        left += [LeftLogDir(None, id_, by, self.named.sure, tuple(ws)) for id_, ws in sorted(self.by_id.items())]
        unknown = None
        if not self.named.sure:
            left += _without_assignments(o for o in self.others if o.path not in (*self.known, *self.possible))
            unknown = self.named.unknown
        hidden, promoted = tuple(self.hidden), tuple(self.promoted)
        return Missing(tuple(self.here), tuple(left), hidden, self.named.unseen, promoted, self.named.doubt, unknown)
