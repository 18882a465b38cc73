"""When a log dir was last changed, by the kernel's own timestamps (ctime), which nobody can set."""

from __future__ import annotations

import os

from logagent.broker.files.checkpoint_files import CHECKPOINTS
from logagent.broker.files.meta_properties import META_PROPERTIES
from logagent.broker.process.lock import LOCK_FILE
from logagent.host.log_dir.log_dir import OpenLogDir

CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
# What a broker writes while it runs and when it stops.
BROKER_FILES = (*CHECKPOINTS, META_PROPERTIES, LOCK_FILE, CLEAN_SHUTDOWN)


def changed_ms(log_dir: OpenLogDir) -> list[int]:
    """The ctimes (ms) of the log dir itself and of those of the broker's own files that exist in it. Raises
    KafkaStorageError or ItemFailed."""
    with log_dir.acting("look"):
        found = [os.fstat(log_dir.fd).st_ctime_ns]
        for name in BROKER_FILES:
            try:
                found.append(os.stat(name, dir_fd=log_dir.fd, follow_symlinks=False).st_ctime_ns)
            except FileNotFoundError:
                continue
    return [at // 1_000_000 for at in found]
