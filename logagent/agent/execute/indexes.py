"""The index files that are removed before a directory gets its current name back (`broker.files.index_files` says
which)."""

from __future__ import annotations

import os
from contextlib import suppress

from logagent.broker.files.index_files import indexes_to_rebuild
from logagent.broker.files.segment_files import look_at_segments
from logagent.broker.process.lock import Interlock
from logagent.host.log_dir.log_dir import OpenLogDir
from logagent.model.planning.plan import Proposal


def drop_indexes(log_dir: OpenLogDir, p: Proposal, interlock: Interlock) -> None:
    """Unlink the `.index` files of the directory that `p` restores, durably (one fsync of the directory).

    The present files count, not those the plan saw. It is harmless to repeat this, and also if the restore never
    follows: a broker that loads the stray rebuilds them. Raises NotAsPlanned, BrokerHoldsLogDir, KafkaStorageError or
    ItemFailed.
    """
    with log_dir.acting("removal of index files", p.dir.name):
        fd = log_dir.open_child(p.dir.name, p.dir.identity)
        try:
            before = os.fstat(fd)
            for name in indexes_to_rebuild(look_at_segments(fd), every_segment=p.rebuild_all).unlink:
                interlock.before()
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=fd)
            # Keep its mtime: verdicts depend on a directory's age.
            os.utime(fd, ns=(before.st_atime_ns, before.st_mtime_ns))
            os.fsync(fd)
        finally:
            os.close(fd)
