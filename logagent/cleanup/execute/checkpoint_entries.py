"""The checkpoint entries of a partition in its log dir: which are removed with it, and how they are edited.

The checkpoint entries of a directory that gets its current name back: which of its own entries still fit, and which
of the existing ones do not.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress

from logagent.base.dir_names import CLEANER, LOG_START_OFFSET, RECOVERY_POINT, classify, current_name
from logagent.base.errors import ItemFailed, NotAsPlanned, UnreadableError
from logagent.base.records import LIVE_KINDS, ActionKind, Identity, Kind, PartitionDir, TopicPartition
from logagent.cleanup.plan.plan import Proposal, action_id
from logagent.cleanup.state.journal import CheckpointEntry, Journal
from logagent.disk.log_dir import OpenLogDir
from logagent.kafka.files.checkpoint_files import read_checkpoint, rewrite_checkpoint
from logagent.kafka.files.log_extent import read_log_extent
from logagent.kafka.files.meta_properties import read_topic_id
from logagent.kafka.processes.lock import Interlock

# Checkpoints whose entries are removed with a partition.
ENTRY_FILES = (LOG_START_OFFSET, CLEANER, RECOVERY_POINT)


def entries_to_drop(log_dir: OpenLogDir, proposals: Sequence[Proposal]) -> dict[str, tuple[CheckpointEntry, ...]]:
    """By action id, the checkpoint entries that a mark or quarantine in `log_dir` removes.

    A stray that is marked has none: the entries of its partition belong to the current log beside it. The same holds
    for a future log, and for `orders-01` if `orders-1` exists beside it and stays. Raises UnreadableError,
    KafkaStorageError or ItemFailed.
    """
    wanted = dict(may_have_entries(log_dir, proposals))
    found: dict[str, tuple[CheckpointEntry, ...]] = {}
    for file in ENTRY_FILES if wanted else ():
        with log_dir.acting("read", file):
            standing = read_checkpoint(log_dir.fd, file) or {}
        for tp, offset in standing.items():
            p = wanted.get(tp)
            if p is None or (file == CLEANER and p.dir.kind is Kind.FUTURE):
                continue
            entry = CheckpointEntry(file, tp.topic, tp.partition, offset)
            found[action_id(p)] = (*found.get(action_id(p), ()), entry)
    return found


def may_have_entries(log_dir: OpenLogDir, proposals: Sequence[Proposal]) -> list[tuple[TopicPartition, Proposal]]:
    """Those for whose partitions the checkpoints of `log_dir` are read. Raises KafkaStorageError or ItemFailed."""
    proposals = [p for p in proposals if p.action is not ActionKind.REMOVE_LEFTOVERS]
    going = {p.dir.name for p in proposals}
    return [
        (TopicPartition(p.dir.topic, p.dir.partition), p)
        for p in proposals
        if p.dir.kind in LIVE_KINDS
        and p.dir.topic is not None
        and p.dir.partition is not None
        and not _stays(log_dir, current_name(p.dir.topic, p.dir.partition), going)
    ]


def _stays(log_dir: OpenLogDir, name: str, going: AbstractSet[str]) -> bool:
    """Whether the directory `name` exists and is not among those to be removed."""
    if name in going:
        return False
    with log_dir.acting("look", name):
        try:
            os.stat(name, dir_fd=log_dir.fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        except OSError as e:
            if e.errno == errno.ENAMETOOLONG:
                return False
            raise
    return True


def edit_checkpoints(
    log_dir: OpenLogDir,
    interlock: Interlock,
    *,
    drop: Sequence[CheckpointEntry],
    put: Sequence[CheckpointEntry],
    files: Sequence[str],
) -> None:
    """Remove `drop` from, and add `put` (if there is no entry yet) to, the checkpoints `files` of `log_dir`.

    Only while no process holds the log dir. Raises BrokerHoldsLogDir, KafkaStorageError, ItemFailed or UnreadableError.
    """
    for file in files:
        out = {TopicPartition(e.topic, e.partition) for e in drop if e.file == file}
        back = {TopicPartition(e.topic, e.partition): e.offset for e in put if e.file == file}
        if out or back:
            with log_dir.acting("rewrite", file):
                standing = read_checkpoint(log_dir.fd, file) or {}
                back = {tp: offset for tp, offset in back.items() if tp not in standing}
                rewrite_checkpoint(log_dir.fd, file, drop=out, put=back, before_act=interlock.before)


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
            log = read_log_extent(fd)
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
    with suppress(NotAsPlanned, ItemFailed):  # then nothing is known of its log, and the entry is removed
        if fitting(source, d.name, d.identity, d.topic_id, (entry,), served=True):
            return []
    return [entry]
