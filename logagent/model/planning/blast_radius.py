"""What was taken away within the last 24 hours, each directory counted once, as the blast radius needs it."""

from __future__ import annotations

from collections.abc import Iterable

from logagent.model.facts import RecentAction
from logagent.model.records import Identity, Kind, PartitionDir

Key = tuple[Identity, str | None, int | None]
_PARTITION_KINDS = (Kind.CURRENT, Kind.FUTURE, Kind.STRAY, Kind.DELETE)


class Taken:
    """The directories of `recent`, by what tells them apart over all their names and places.

    A directory keeps its inode over renames; the topic id and the partition tell it from the next one that gets that
    inode. A removal that was interrupted may have taken the topic id: then inode and partition have to do. sizes: the
    largest that was seen of each. approved: those that an operator allowed.
    """

    def __init__(self, recent: Iterable[RecentAction]) -> None:
        rows = tuple(recent)
        self._with_id = {(r.identity, r.partition): r.topic_id for r in rows if r.topic_id is not None}
        self.sizes: dict[Key, int] = {}
        self.approved: set[Key] = set()
        for r in rows:
            key = self._key(r.identity, r.topic_id, r.partition)
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
