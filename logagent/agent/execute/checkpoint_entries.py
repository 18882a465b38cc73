"""The checkpoint entries of a partition in its log dir: which are removed with it, and how they are edited."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from logagent.broker.files.checkpoint_files import (
    CLEANER,
    LOG_START_OFFSET,
    RECOVERY_POINT,
    read_checkpoint,
    rewrite_checkpoint,
)
from logagent.broker.process.lock import Interlock
from logagent.host.log_dir.log_dir import OpenLogDir
from logagent.host.state.journal import CheckpointEntry
from logagent.model.naming.dir_names import current_name
from logagent.model.planning.plan import Proposal, action_id
from logagent.model.records import Kind, TopicPartition

# Checkpoints whose entries are removed with a partition.
ENTRY_FILES = (LOG_START_OFFSET, CLEANER, RECOVERY_POINT)
_IN_CHECKPOINTS = (Kind.CURRENT, Kind.FUTURE)


def entries_to_drop(log_dir: OpenLogDir, proposals: Sequence[Proposal]) -> dict[str, tuple[CheckpointEntry, ...]]:
    """By action id, the checkpoint entries that a mark or quarantine in `log_dir` removes.

    A stray that is marked has none: the entries of its partition belong to the current log beside it. The same holds
    for a future log, and for `orders-01` if `orders-1` exists beside it and stays. Raises UnreadableError,
    KafkaStorageError or ItemFailed.
    """
    going = {p.dir.name for p in proposals}
    wanted = {
        TopicPartition(p.dir.topic, p.dir.partition): p
        for p in proposals
        if p.dir.kind in _IN_CHECKPOINTS
        and p.dir.topic is not None
        and p.dir.partition is not None
        and not _stays(log_dir, current_name(p.dir.topic, p.dir.partition), going)
    }
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
