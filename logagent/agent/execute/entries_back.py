"""The checkpoint entries of a directory that gets its current name back: which of its own entries still fit, and which
of the existing ones do not."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress

from logagent.broker.files.checkpoint_files import CLEANER, LOG_START_OFFSET, read_checkpoint
from logagent.broker.files.log_look import look_at_log
from logagent.broker.files.meta_properties import read_topic_id
from logagent.errors import ItemFailed, NotAsPlanned, UnreadableError
from logagent.host.log_dir.log_dir import OpenLogDir
from logagent.host.state.journal import CheckpointEntry, Journal
from logagent.model.naming.dir_names import classify
from logagent.model.planning.plan import Proposal
from logagent.model.records import ActionKind, Identity, Kind, PartitionDir, TopicPartition


def fitting(
    log_dir: OpenLogDir,
    name: str,
    identity: Identity,
    topic_id: str | None,
    entries: Sequence[CheckpointEntry],
    *,
    served: bool,
) -> tuple[CheckpointEntry, ...]:
    """Those of `entries` that still belong to the directory `name`; none if it has another topic id by now.

    A log start offset above the log's end is left out: a broker deletes all segments of such a log. `served`: a broker
    may have written to (or truncated) the log since the entries were read; then an entry that cannot be compared with
    the log's end is left out too, and at worst deleted records show again. Raises KafkaStorageError or ItemFailed.
    """
    if not entries:
        return ()
    with log_dir.acting("look", name):
        fd = log_dir.open_child(name, identity)
        try:
            if read_topic_id(fd) != topic_id:
                return ()
            log = look_at_log(fd)
        except UnreadableError:
            return ()
        finally:
            os.close(fd)

    def fits(e: CheckpointEntry) -> bool:
        reached = log.reaches(e.offset)
        return e.file != LOG_START_OFFSET or (not served if reached is None else reached)

    return tuple(e for e in entries if fits(e))


def saved_entries(journal: Journal, source: OpenLogDir, d: PartitionDir) -> tuple[CheckpointEntry, ...]:
    """The entries that the journal recorded as removed from the checkpoints for the stray or marked directory `d`, as
    far as they fit."""
    saved = journal.saved_checkpoint_entries(d.name, d.identity)
    # A deleted or swapped directory fails at its rename.
    with suppress(NotAsPlanned, ItemFailed):
        return fitting(source, d.name, d.identity, d.topic_id, saved, served=False)
    return ()


def stale_entries(
    journal: Journal, home: OpenLogDir, source: OpenLogDir, proposals: Sequence[Proposal]
) -> list[CheckpointEntry]:
    """Existing entries in the checkpoints of `home` for partitions that come back there from `source`.

    No directory has those names now, so the entries belong to a deleted incarnation; a log start offset above the end
    of this one would make the broker delete its segments. If the journal does not know the directory's own entries, an
    entry that its log reaches may be its own, and stays.
    """
    found: list[CheckpointEntry] = []
    for p in proposals:
        if p.action is not ActionKind.RESTORE or p.full_topic is None or p.dir.partition is None:
            continue
        if classify(p.new_name or "").kind is not Kind.CURRENT:
            continue
        partition = TopicPartition(p.full_topic, p.dir.partition)
        if journal.renamed_to(p.dir.name, p.dir.identity) is None:
            found += _not_reached(home, source, p.dir, partition)
        else:
            files = (LOG_START_OFFSET, CLEANER)
            found += [CheckpointEntry(file, partition.topic, partition.partition, 0) for file in files]
    return found


def _not_reached(
    home: OpenLogDir, source: OpenLogDir, d: PartitionDir, partition: TopicPartition
) -> list[CheckpointEntry]:
    """The log start offset recorded for `partition`, unless the log of `d` is known to reach it."""
    with home.acting("read", LOG_START_OFFSET):
        offset = (read_checkpoint(home.fd, LOG_START_OFFSET) or {}).get(partition)
    if offset is None:
        return []
    entry = CheckpointEntry(LOG_START_OFFSET, partition.topic, partition.partition, offset)
    with suppress(NotAsPlanned, ItemFailed):
        if fitting(source, d.name, d.identity, d.topic_id, (entry,), served=True):
            return []
    return [entry]
