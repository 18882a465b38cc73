"""What is assigned to this node and has no directory on it. Decides without I/O.

A start makes such a partition anew, empty, and says nothing of it. With other replicas in sync it is copied again;
where this node is the only one, its records are gone, unless what was set aside or removed by hand can still be brought
back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from logagent.model.assignments.image import AssignmentImage
from logagent.model.records import Kind, PartitionDir


@dataclass(frozen=True, slots=True)
class WithoutDirectory:
    """`only_copy`: no other replica is in sync, None if the source does not say. `aside`: where a directory of its
    topic id was set aside or marked."""

    topic: str
    partition: int
    topic_id: str | None
    only_copy: bool | None
    aside: str | None = None

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def without_directory(
    image: AssignmentImage | None, node_id: int | None, dirs: Iterable[PartitionDir]
) -> list[WithoutDirectory]:
    """Those of `image` that none of `dirs` is loaded as, which are all directories of the host. One that is marked for
    deletion or set aside is not loaded."""
    if image is None or node_id is None:
        return []
    loaded: dict[tuple[str | None, int | None], set[str | None]] = {}
    aside: dict[tuple[str | None, int | None], str] = {}
    for d in dirs:
        if d.kind in (Kind.CURRENT, Kind.FUTURE):
            loaded.setdefault((d.topic, d.partition), set()).add(d.topic_id)
        elif d.kind in (Kind.STRAY, Kind.DELETE) and d.topic_id is not None:
            aside[d.topic_id, d.partition] = f"{d.log_dir}/{d.name}"
    found = []
    for name, topic in sorted(image.by_name.items()):
        for number, partition in sorted(topic.partitions.items()):
            ids = loaded.get((name, number), set())
            if node_id not in partition.replicas or None in ids or topic.topic_id in ids:
                continue
            if ids and topic.topic_id is None:
                continue
            only = not [n for n in partition.isr if n != node_id] if partition.isr else None
            found.append(WithoutDirectory(name, number, topic.topic_id, only, aside.get((topic.topic_id, number))))
    return found
