"""The index files that are removed before a directory gets its current name back (`broker.files.index_files` says
which), or to make room for setting it aside on a full disk."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

from logagent.broker.files.segment_files import SegmentsLook, every_index, indexes_to_rebuild, look_at_segments
from logagent.broker.process.lock import Interlock
from logagent.host.log_dir.log_dir import OpenLogDir
from logagent.model.planning.plan import Proposal


def drop_indexes(log_dir: OpenLogDir, p: Proposal, interlock: Interlock) -> None:
    """Unlink the `.index` files of the directory that `p` restores, durably (one fsync of the directory).

    The present files count, not those the plan saw. It is harmless to repeat this, and also if the restore never
    follows: a broker that loads the stray rebuilds them. Raises NotAsPlanned, BrokerHoldsLogDir, KafkaStorageError or
    ItemFailed.
    """
    chosen = partial(indexes_to_rebuild, every_segment=p.rebuild_all)
    _unlink(log_dir, p, interlock, lambda look: chosen(look).unlink)


def drop_every_index(log_dir: OpenLogDir, p: Proposal, interlock: Interlock) -> None:
    """Unlink all indexes of a directory that is about to be set aside and removed, durably, for their blocks and
    inodes: on a full disk nothing can be renamed without them. A broker that loads it after all rebuilds them. Raises
    as `drop_indexes` does."""
    _unlink(log_dir, p, interlock, every_index)


def _unlink(
    log_dir: OpenLogDir, p: Proposal, interlock: Interlock, names: Callable[[SegmentsLook], Iterable[str]]
) -> None:
    with log_dir.acting("removal of index files", p.dir.name):
        fd = log_dir.open_child(p.dir.name, p.dir.identity)
        try:
            before = os.fstat(fd)
            for name in names(look_at_segments(fd)):
                interlock.before()
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=fd)
            # Keep its mtime: verdicts depend on a directory's age.
            os.utime(fd, ns=(before.st_atime_ns, before.st_mtime_ns))
            os.fsync(fd)
        finally:
            os.close(fd)
