"""Which places outside the log dirs get a line of their own, and whose log dirs are among them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

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


class PlaceOutside(NamedTuple):
    """One line: where bytes are. `files`: all but directories."""

    path: str
    kind: PlaceKind
    allocated: int
    files: int


class LogDirOutside(NamedTuple):
    """A log dir outside `log.dirs`. `partitions`: directories in it that have segments. `in_use`: a process has its
    lock."""

    path: str
    allocated: int
    partitions: int
    cluster_id: str | None
    node_id: int | None
    in_use: bool


@dataclass(frozen=True, slots=True)
class Outside:
    """What was counted below `root`, the mount point, without the log dirs. `rest`: what is in no line. `unread`:
    directories that could not be read. `unfinished`: why the search ended before everything was counted; None if it
    did not."""

    root: str
    log_dirs: Sequence[LogDirOutside] = ()
    places: Sequence[PlaceOutside] = ()
    rest: int = 0
    rest_files: int = 0
    unread: int = 0
    unfinished: str | None = None


def summed_up(
    root: str,
    tree: DiskUsage,
    log_dirs: Iterable[LogDirOutside],
    *,
    unread: int = 0,
    unfinished: str | None = None,
    most: int = MOST_PLACES,
) -> Outside:
    """The largest log dirs, and the largest places of `tree`, in which the log dirs do not count."""
    by_size = sorted(log_dirs, key=lambda d: (-d.allocated, d.path))
    places = _largest(tree, most)
    return Outside(
        root,
        by_size[:most],
        places,
        tree.allocated - sum(p.allocated for p in places) + sum(d.allocated for d in by_size[most:]),
        tree.files - sum(p.files for p in places),
        unread,
        unfinished,
    )


def _largest(tree: DiskUsage, most: int) -> list[PlaceOutside]:
    """At most `most` places, largest first. The largest directory is divided into its parts for as long as there is
    room for these: so a single huge file has a line, and what is spread evenly is a line of its directory."""
    least = max(tree.allocated // _LEAST_SHARE, 1)
    whole: list[DiskUsage] = [tree]
    places: list[PlaceOutside] = []
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
            places.append(PlaceOutside(largest.path, PlaceKind.REMAINDER, bytes_left, files))
    kinds = {True: PlaceKind.FILE, False: PlaceKind.DIRECTORY}
    places += [PlaceOutside(t.path, kinds[t.is_file], t.allocated, t.files) for t in whole if t.allocated]
    return sorted(places, key=lambda p: (-p.allocated, p.path))


def whose(log_dir: LogDirOutside, cluster_id: str | None, node_id: int | None, metadata_log_dir: str | None) -> Whose:
    """`cluster_id`, `node_id`, `metadata_log_dir`: of the node whose log dirs are explained, None where unknown."""
    if log_dir.path == metadata_log_dir:
        return Whose.METADATA_LOG_DIR
    if log_dir.cluster_id is None and log_dir.node_id is None:
        return Whose.UNKNOWN
    if log_dir.cluster_id is not None and log_dir.cluster_id != cluster_id:
        return Whose.OTHER_CLUSTER
    return Whose.THIS_NODE if log_dir.node_id == node_id else Whose.OTHER_NODE
