"""The log end offsets of directories that no broker serves: part of what tells one from any other."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from functools import partial

from logagent.base.errors import LogAgentError
from logagent.base.records import DirKey, PartitionDir
from logagent.base.sizes import LARGEST_COUNT
from logagent.disk.calls import DiskCalls
from logagent.disk.log_dir import OpenLogDir
from logagent.kafka.files.log_extent import read_log_extent

DIRS_A_CALL = 64
"""A call must end before its log dir counts as hung: on a cold disk each of these takes some seeks."""


def log_ends(
    dirs: Sequence[PartitionDir], opened: Mapping[str, OpenLogDir], calls: DiskCalls
) -> dict[DirKey, int | None]:
    """Of each of `dirs` that can be opened now; None where its files do not say it for certain."""
    waiting: dict[str, list[PartitionDir]] = {}
    for d in dirs:
        if d.log_dir in opened:
            waiting.setdefault(d.log_dir, []).append(d)
    found: dict[DirKey, int | None] = {}
    while waiting:
        jobs = {path: partial(_read_ends, opened[path], there[:DIRS_A_CALL]) for path, there in waiting.items()}
        ended = calls.call_each(jobs)
        for path, ends in ended.items():
            if isinstance(ends, LogAgentError):
                del waiting[path]
                continue
            found |= ends
            del waiting[path][:DIRS_A_CALL]
        waiting = {path: there for path, there in waiting.items() if there}
    return found


def read_end(log_dir: OpenLogDir, d: PartitionDir) -> int | None:
    """The log end offset of `d` now. Raises LogAgentError if it is no longer there, or its disk fails."""
    with log_dir.acting("read", d.name):
        fd = log_dir.open_child(d.name, d.identity)
        try:
            end = read_log_extent(fd).log_end
            return None if end is None or end > LARGEST_COUNT else end
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return None  # a bad sector of what nobody reads takes no log dir offline
        finally:
            os.close(fd)


def _read_ends(log_dir: OpenLogDir, dirs: Sequence[PartitionDir]) -> dict[DirKey, int | None]:
    found: dict[DirKey, int | None] = {}
    for d in dirs:
        try:
            found[d.key] = read_end(log_dir, d)
        except LogAgentError:
            log_dir.check()  # that of a log dir that is offline ends the call
    return found
