"""Makes a generated fleet look real: terabytes, different disks, names, and reasons to act."""

from __future__ import annotations

import random

from logagent.fleet.demo.planted import Dir, topic_id, uuid_hex

GIB = 1 << 30
CLUSTERS = ("payments-eu", "clickstream-us", "telemetry", "orders-eu", "search-us", "audit")
_AREAS = ("checkout", "clicks", "orders", "ledger", "sensors", "search", "fraud", "users", "stock", "audit")
_WHAT = ("events", "raw", "enriched", "changes", "commands", "sessions", "state", "dead-letter")
LOG_DIRS = 3
RETIRED = ("clicks.raw-v1", "sensors.raw-2024", "ledger.backfill")
"""Topics that were deleted while a host was down: their directories still exist."""


def topic_name(number: int) -> str:
    area = _AREAS[number % len(_AREAS)]
    version = number // (len(_AREAS) * len(_WHAT))
    return f"{area}.{_WHAT[number // len(_AREAS) % len(_WHAT)]}{f'-v{version + 1}' if version else ''}"


def size(source: random.Random) -> int:
    """Bytes of a partition: most have a few gigabytes, some have hundreds."""
    return min(int(source.lognormvariate(23.2, 1.1)), 600 * GIB)


def capacity(source: random.Random, used: int) -> int:
    """The size of a file system that holds `used`: some are nearly full, most are not."""
    fullness = min(max(source.betavariate(6, 3), 0.15), 0.975)
    return max(int((used + 6 * GIB) / fullness), 64 * GIB)


def retired(source: random.Random, cluster_id: str, node: int, hosts: int, last: int) -> list[Dir]:
    """What deleted topics have left on a host: orphans shared with its neighbour (those of one topic only since day
    `last`), and strays, old and young."""
    made = []
    for number, name in enumerate(RETIRED):
        if (node + number) % 3 == 0:
            continue
        id_ = topic_id(cluster_id, name)
        for shared in (node, node % hosts + 1):
            bytes_ = 40 * GIB + shared * 977 * (GIB >> 8)
            orphan = Dir(f"{name}-{shared}", "current", name, shared, id_, bytes_, number % LOG_DIRS, 40, 1000 + shared)
            orphan.orphan = "topic-absent"
            orphan.comes = last if number == 2 else 0
            made.append(orphan)
    for partition, hours in enumerate((500.0, 260.0, 50.0, 20.0)):
        if source.random() < 0.6:
            name = f"sessions.v{partition + 1}"
            full = f"{name}-{node}.{uuid_hex(cluster_id, node, name)}-stray"
            id_ = topic_id(cluster_id, name)
            made.append(Dir(full, "stray", name, node, id_, size(source), node % LOG_DIRS, 20, marked_hours=hours))
    return made
