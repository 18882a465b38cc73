"""Moves of partitions between the log dirs of one broker (KIP-113): both sides of each, and how far it is.

A `-future` directory is the copy: while the broker runs, `ReplicaAlterLogDirsThread` fills it from the current one in
another log dir. Once it has all of that, it takes the partition's name, and the other is marked for deletion.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from logagent.base.records import Kind, PartitionDir, id_unread


class Move(NamedTuple):
    """future: the copy. source: the current directory that it is made from; None where none was seen. How far it is:
    `segment_bytes` of the one of those of the other, which go on growing."""

    future: PartitionDir
    source: PartitionDir | None

    @property
    def partition(self) -> str:
        """The name that the copy takes."""
        return f"{self.future.topic}-{self.future.partition}"

    def concerns(self, log_dir: str) -> bool:
        return log_dir == self.future.log_dir or (self.source is not None and log_dir == self.source.log_dir)


def moves_of(dirs: Iterable[PartitionDir]) -> list[Move]:
    """Every move, in the order of the copies. A current directory in the copy's own log dir is not its source, nor is
    one that is known to be of another topic: an id that was not read may be the same."""
    futures: list[PartitionDir] = []
    currents: dict[tuple[str | None, int | None], list[PartitionDir]] = {}
    for d in dirs:
        if d.kind is Kind.FUTURE:
            futures.append(d)
        elif d.kind is Kind.CURRENT:
            currents.setdefault((d.topic, d.partition), []).append(d)
    return [Move(f, _source(f, currents.get((f.topic, f.partition), []))) for f in sorted(futures, key=lambda f: f.key)]


def _source(future: PartitionDir, currents: Iterable[PartitionDir]) -> PartitionDir | None:
    others = [d for d in currents if d.log_dir != future.log_dir]
    same = [d for d in others if d.topic_id == future.topic_id or id_unread(d) or id_unread(future)]
    return same[0] if len(same) == 1 else None
