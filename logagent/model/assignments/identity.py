"""Whether the cluster that answers is the one that this host's disks belong to. Decides without I/O.

Cluster id and node id prove nothing: a cluster cloned with its disks has both. Our own broker's answer to
DescribeLogDirs must match our disks. While it is down, only brokers count that a cluster proven this way has named.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from logagent.model.records import Kind, PartitionDir

Partition = tuple[str, int]

SETTLED_MS = 60_000
"""A directory younger than this may have been created between our look and the broker's answer."""


class BrokerPlace(NamedTuple):
    """A broker and where it listens, from the cluster's metadata."""

    node_id: int
    host: str
    port: int


def partitions_on_disk(
    dirs: Iterable[PartitionDir], log_dirs: Iterable[str], now_ms: int
) -> dict[str, frozenset[Partition]]:
    """What a broker that has loaded the log dirs must list: by log dir, the partitions of its current directories.

    Only settled directories count; if there are none (a broker touches each when it starts), all of them do, as a host
    could not be recognised otherwise.
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
    described: Mapping[str, AbstractSet[Partition] | None],
    on_disk: Mapping[str, AbstractSet[Partition]],
    *,
    is_its_own: bool = False,
) -> str | None:
    """Why the broker that answered `described` is not the one that uses our disks; None if it is.

    `described` are its partitions by log dir, None for a log dir that it reports as offline. It must contain each of
    our log dirs with every partition that we see there, and at least one partition in all: an empty disk could be
    anyone's. (Not if it was asked at an address where the process listens that has our disks locked: `is_its_own`.)
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
    return (
        None
        if in_common or (is_its_own and not any(on_disk.values()))
        else "it shows none of the partitions on this disk"
    )
