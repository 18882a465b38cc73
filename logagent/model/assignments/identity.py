"""Is the cluster that answers the one that this host's disk belongs to? The decision, without I/O.

Cluster id and node id prove nothing: a cluster that was cloned with its disks has both. What our own broker says in
DescribeLogDirs has to be what lies on our disk. While it is down, only brokers that a cluster proven so named count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from logagent.model.records import Kind, PartitionDir

Partition = tuple[str, int]

SETTLED_MS = 60_000
"""A directory younger than this may have come between our look and the broker's answer."""


class BrokerPlace(NamedTuple):
    """A broker by where it listens, as the cluster's metadata tells it."""

    node_id: int
    host: str
    port: int


def partitions_on_disk(
    dirs: Iterable[PartitionDir], log_dirs: Iterable[str], now_ms: int
) -> dict[str, frozenset[Partition]]:
    """What a broker that has loaded the log dirs must show: by log dir, the partitions of its current directories.

    Those that are settled; where none is (a broker that started a moment ago touches each) all of them, or a host would
    be known by nothing.
    """
    found: dict[str, set[Partition]] = {path: set() for path in log_dirs}
    young: dict[str, set[Partition]] = {path: set() for path in found}
    for d in dirs:
        if d.kind is not Kind.CURRENT or d.error is not None or d.log_dir not in found:
            continue
        settled = max(d.ctime_ns, d.mtime_ns) // 1_000_000 <= now_ms - SETTLED_MS
        if d.topic is not None and d.partition is not None:
            (found if settled else young)[d.log_dir].add((d.topic, d.partition))
    if not any(found.values()):
        found = young
    return {path: frozenset(partitions) for path, partitions in found.items()}


def why_not_ours(
    described: Mapping[str, AbstractSet[Partition] | None], on_disk: Mapping[str, AbstractSet[Partition]]
) -> str | None:
    """Why the broker that gave `described` is not the one that has our disk; None if it is.

    `described` are its partitions by log dir, None for a log dir that it calls offline. Every log dir of ours must be
    among them with every partition that we see in it, and one at least must be there: an empty disk is anybody's.
    """
    in_common = 0
    for path, partitions in on_disk.items():
        if path not in described:
            return f"it has no log dir {path}"
        shown = described[path]
        if shown is None:
            continue
        missing = partitions - shown
        if missing:
            topic, number = min(missing)
            return f"it does not show {topic}-{number} in {path} (and {len(missing) - 1} more of {len(partitions)})"
        in_common += len(partitions)
    return None if in_common else "it shows no partition that lies on this disk"
