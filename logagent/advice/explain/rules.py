"""What `explain` says of bytes that were read: the reason of a directory as a whole, sums by reason, and which places
outside the log dirs get a line of their own, and whose log dirs are among them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, NamedTuple

from logagent.base.errors import LogAgentError
from logagent.base.records import ConfigEntry, DirKey, PartitionDir, Reason, Size
from logagent.cleanup.plan.plan import Proposal, Waiting
from logagent.cleanup.plan.planner import Told
from logagent.kafka.retention.reasons import Group, RetentionReason, because
from logagent.verdict.copies import needs_cover
from logagent.verdict.facts import Ruling

# What bytes are summed up by: the reason's code, and the setting.
KindOfSum = tuple[str, ConfigEntry | None]
SET_ASIDE: Final = "set aside by logagent cleanup"
# What its broker neither removes nor has to run for.
BY_LOGAGENT: Final = frozenset({RetentionReason.ORPHAN, RetentionReason.STRAY, RetentionReason.MARKED})

MOST_PLACES: Final = 20
"""How many places are listed of a file system, and how many log dirs."""
# Smaller shares of what is outside the log dirs get no line of their own.
_LEAST_SHARE = 100


class PlaceKind(StrEnum):
    """REMAINDER: what is in a directory besides those of its parts that are listed themselves."""

    DIRECTORY = "directory"
    REMAINDER = "remainder"
    FILE = "file"


class Whose(StrEnum):
    """Whose a log dir is that is not in `log.dirs`, by its `meta.properties`. THIS_NODE: of this node, so of an older
    configuration of it. UNKNOWN: it has none that can be read; its partition directories show what it is."""

    METADATA_LOG_DIR = "metadata-log-dir"
    THIS_NODE = "this-node"
    OTHER_NODE = "other-node"
    OTHER_CLUSTER = "other-cluster"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class DiskUsage:
    """A directory or file: `allocated` bytes with everything below, in so many `files` (all but directories). `parts`:
    of what is in it, what is large."""

    path: str
    is_file: bool = False
    allocated: int = 0
    files: int = 0
    parts: list[DiskUsage] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class PlaceDoc:
    """Where bytes outside the log dirs are. `kind`: `remainder` is what is in a directory besides its parts that are
    listed themselves. `files`: all but directories."""

    path: str
    kind: PlaceKind
    allocated: Size
    files: Size


@dataclass(frozen=True, slots=True)
class OtherLogDirDoc:
    """A log dir that is not in `log.dirs`. `whose`: by its `meta.properties`, of which `cluster_id` and `node_id` are;
    `unknown` where it has none that can be read, and is known by its partition directories. `partitions`: those with
    segments. `in_use`: a process has its lock."""

    path: str
    whose: Whose
    cluster_id: str | None
    node_id: int | None
    partitions: Size
    allocated: Size
    in_use: bool


@dataclass(frozen=True, slots=True)
class OutsideDoc:
    """What was counted below `root`, the mount point, outside the log dirs, within its time: allocated bytes, each file
    once, no symlink followed and no other file system entered. `log_dirs`, `places`: the 20 largest of each; `rest`:
    what is in none of them, in `rest_files`. `unread_directories`: how many could not be read. `unfinished`: why it is
    not everything; null if it is."""

    root: str
    log_dirs: list[OtherLogDirDoc]
    places: list[PlaceDoc]
    rest: Size
    rest_files: Size
    unread_directories: Size
    unfinished: str | None


def summed_up(
    root: str,
    tree: DiskUsage,
    log_dirs: Iterable[OtherLogDirDoc],
    *,
    unread: int = 0,
    unfinished: str | None = None,
    most: int = MOST_PLACES,
) -> OutsideDoc:
    """The largest log dirs, and the largest places of `tree`, in which the log dirs do not count."""
    by_size = sorted(log_dirs, key=lambda d: (-d.allocated, d.path))
    places = _largest(tree, most)
    return OutsideDoc(
        root,
        by_size[:most],
        places,
        tree.allocated - sum(p.allocated for p in places) + sum(d.allocated for d in by_size[most:]),
        tree.files - sum(p.files for p in places),
        unread,
        unfinished,
    )


def _largest(tree: DiskUsage, most: int) -> list[PlaceDoc]:
    """At most `most` places, largest first. The largest directory is divided into its parts for as long as there is
    room for these: so a single huge file has a line, and what is spread evenly is a line of its directory."""
    least = max(tree.allocated // _LEAST_SHARE, 1)
    whole: list[DiskUsage] = [tree]
    places: list[PlaceDoc] = []
    left_whole: set[int] = set()
    while True:
        divisible = [t for t in whole if t.parts and id(t) not in left_whole]
        if not divisible:
            break
        largest = max(divisible, key=lambda t: t.allocated)
        parts = [p for p in largest.parts if p.allocated >= least]
        bytes_left = largest.allocated - sum(p.allocated for p in parts)
        remains = bytes_left >= least and largest is not tree
        if not parts or len(whole) - 1 + len(places) + len(parts) + remains > most:
            left_whole.add(id(largest))
            continue
        whole.remove(largest)
        whole += parts
        if remains:
            files = largest.files - sum(p.files for p in parts)
            places.append(PlaceDoc(largest.path, PlaceKind.REMAINDER, bytes_left, files))
    kinds = {True: PlaceKind.FILE, False: PlaceKind.DIRECTORY}
    places += [PlaceDoc(t.path, kinds[t.is_file], t.allocated, t.files) for t in whole if t.allocated]
    return sorted(places, key=lambda p: (-p.allocated, p.path))


class ThisNode(NamedTuple):
    """The node whose log dirs are explained; None where unknown."""

    cluster_id: str | None = None
    node_id: int | None = None
    metadata_log_dir: str | None = None

    def whose(self, path: str, cluster_id: str | None, node_id: int | None) -> Whose:
        """Whose the log dir `path` is, in whose `meta.properties` are these."""
        if path == self.metadata_log_dir:
            return Whose.METADATA_LOG_DIR
        if cluster_id is None and node_id is None:
            return Whose.UNKNOWN
        if cluster_id is not None and cluster_id != self.cluster_id:
            return Whose.OTHER_CLUSTER
        return Whose.THIS_NODE if node_id == self.node_id else Whose.OTHER_NODE


@dataclass(frozen=True, slots=True)
class Explained:
    """One directory and its bytes."""

    dir: PartitionDir
    ruling: Ruling | None
    groups: Sequence[Group]


@dataclass(slots=True)
class Sum:
    """The bytes of many directories that stay for the same reason, by the same setting. `why.until`: None also where it
    is not the same for all (`differs`). `largest`: the directory that has most of them, `largest_bytes` of it."""

    why: Reason
    bytes: int = 0
    allocated: int = 0
    segments: int = 0
    dirs: int = 0
    last_at_ms: int | None = None
    largest: DirKey | None = None
    largest_bytes: int = -1
    differs: bool = False

    def add(self, group: Group, key: DirKey | None) -> None:
        until_ms = group.why.until_ms
        if self.why.until != group.why.until:
            self.why, self.differs = replace(self.why, until=None), True
        self.bytes += group.bytes
        self.allocated += group.allocated
        self.segments += group.segments
        self.dirs += key is not None
        if until_ms is not None:
            if self.why.until_ms is None or until_ms < self.why.until_ms:
                self.why = replace(self.why, until_ms=until_ms)
            last = group.last_at_ms if group.last_at_ms is not None else until_ms
            self.last_at_ms = last if self.last_at_ms is None else max(self.last_at_ms, last)
        if key is not None and group.allocated > self.largest_bytes:
            self.largest, self.largest_bytes = key, group.allocated


def merged(sums: Iterable[Sum]) -> list[Sum]:
    """One for each reason and setting, without those of no bytes."""
    by_reason: dict[KindOfSum, Sum] = {}
    for s in sums:
        known = by_reason.setdefault((s.why.code, s.why.setting), s)
        if known is s:
            continue
        dirs, largest, size = known.dirs, known.largest, known.largest_bytes
        known.add(Group(s.why, s.bytes, s.allocated, s.segments, last_at_ms=s.last_at_ms), None)
        known.differs |= s.differs
        known.dirs = dirs + s.dirs
        known.largest, known.largest_bytes = max((largest, size), (s.largest, s.largest_bytes), key=lambda x: x[1])
    return [s for s in by_reason.values() if s.allocated or s.bytes]


@dataclass(slots=True)
class FileSystem:
    """One file system with log dirs: what is used is the sum of what `sums` allocate. Sizes in bytes. `outside`: what
    the search found of what is in no log dir; None if none was made."""

    device: int
    log_dirs: list[str]
    size: int
    used: int
    free: int
    sums: list[Sum]
    outside: OutsideDoc | None = None


def whole(d: PartitionDir, why: Reason, last_at_ms: int | None = None) -> Group:
    return Group(why, d.bytes, d.allocated, d.segments, d.first_offset, last_at_ms)


def lacks_cover(told: Told) -> bool:
    return told.ruling is not None and needs_cover(told.ruling) and told.covered != "yes"


def goes_when(reason: RetentionReason, told: Told, first: str | None) -> Reason:
    """When the plan of `cleanup` lets it go, and what must happen before (`first`, if nothing else)."""
    obstacle = told.obstacle
    if obstacle is None or obstacle.until_ms is not None or isinstance(told.step, Proposal):
        return because(reason, None, told.goes_at_ms, first)
    if isinstance(told.step, Waiting):
        return because(reason, until=f"cleanup can act on it; now {obstacle.fact}")
    return because(reason, until=f"cleanup can act on it; now {obstacle.fact} ({obstacle.code})")


def or_unread(answer: list[Explained] | LogAgentError | None, dirs: Sequence[PartitionDir]) -> list[Explained]:
    if isinstance(answer, list):
        return answer
    why = str(answer) if answer is not None else "its log dir cannot be read"
    return [Explained(d, None, [unreadable(d, why)]) for d in dirs]


def unreadable(d: PartitionDir, why: str) -> Group:
    return whole(d, because(RetentionReason.UNREADABLE, until=f"it can be read: {why}"))
