"""Whether a journal belongs to this host: state dirs can be swapped, copied or restored from another's backup."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JournalHost:
    """The broker that a journal is about. directory_ids: those of its log dirs (`directory.id`, from 3.7 on)."""

    cluster_id: str
    node_id: int
    directory_ids: frozenset[str] = frozenset()

    def with_dirs_of(self, other: JournalHost) -> JournalHost:
        return JournalHost(self.cluster_id, self.node_id, self.directory_ids | other.directory_ids)


def foreign_journal(known: JournalHost | None, here: JournalHost) -> str | None:
    """Why the journal is of another host; None if it is of this one, or does not say yet.

    Disks may be replaced one by one; but if not a single directory id is known, all disks are different (a clone has
    the same cluster and node id).
    """
    if known is None:
        return None
    if (known.cluster_id, known.node_id) != (here.cluster_id, here.node_id):
        return (
            f"it is of node {known.node_id} of cluster {known.cluster_id}, and this host is node {here.node_id} of"
            f" cluster {here.cluster_id}"
        )
    if known.directory_ids and here.directory_ids and not known.directory_ids & here.directory_ids:
        return f"it is of node {known.node_id} with other log dirs: it knows none of their directory ids"
    return None
