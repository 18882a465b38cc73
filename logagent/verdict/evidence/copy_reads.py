"""Reads the copies that a removal rests on: what is gone cannot be compared with them any more."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from logagent.base.errors import LogAgentError
from logagent.base.files.safe_open import GIB, MIB
from logagent.base.records import PartitionDir
from logagent.disk.calls import DiskCalls, Stop
from logagent.disk.log_dir import OpenLogDir
from logagent.kafka.extents import InCommon
from logagent.kafka.files.log_extent import LogReading, SegmentReadings, read_log_between

K = TypeVar("K")

# Bytes that a cycle of the daemon may read (the disk is the broker's), and a prestart (the broker waits).
CYCLE_BYTES = 4 * GIB
PRESTART_BYTES = 64 * MIB
# Segments of 1 GiB on more disks than a host has; beyond that all are read again.
_MOST_SEGMENTS = 200_000


@dataclass(frozen=True, slots=True)
class Overlap:
    """The copy `dir`, and what it has in common with another directory."""

    dir: PartitionDir
    common: InCommon


def _always() -> bool:
    return True


@dataclass(slots=True)
class CopyReads:
    """Reads what two copies have in common, once per segment.

    A plan only shows what would be done, and is made in every cycle: it reads nothing, but knows the defects that were
    found before. Right before an act (`to_act`) a copy counts only if it was read. That takes longer than a look may,
    so it is work: it ends when the log dir goes offline, when a command waits or the daemon ends (`allowed`), and after
    `left` bytes of each log dir. What is unread then is refused, and a later cycle goes on where this one ended: what
    was read of a segment, in `known`, counts until the file changes. A command has no such limit: its user can press
    Ctrl-C.
    """

    known: SegmentReadings = field(default_factory=dict)
    left: float = float("inf")
    _stop: Stop = _always
    _bytes_read: int = 0

    def __post_init__(self) -> None:
        # The newest segment of a log grows, so only its inode says that it is the same file. That is enough within one
        # session, but not in a later cycle: another file may have that inode by then.
        for key in [key for key, segment in self.known.items() if segment.is_last]:
            del self.known[key]

    @contextmanager
    def allowed(self, stop: Stop) -> Iterator[Callable[[], bool]]:
        """Reading is allowed in the body, until `stop()`. Yields what tells afterwards whether anything was read."""
        before, self._stop = self._bytes_read, stop
        try:
            yield lambda: self._bytes_read > before
        finally:
            self._stop = _always

    def problems(self, asked: Mapping[K, Overlap], opened: Mapping[str, OpenLogDir], calls: DiskCalls) -> dict[K, str]:
        """Why copies do not count, as far as is known without reading."""
        if not self.known:
            return {}
        jobs = {path: partial(job, 0, _always) for path, job in self._jobs(asked, opened).items()}
        return _kept_problems({key: r.defect for key, r in _by_key(asked, calls.call_each(jobs)).items()})

    def read(self, asked: Mapping[K, Overlap], opened: Mapping[str, OpenLogDir], calls: DiskCalls) -> dict[K, str]:
        """The same, to act, after reading what has not been read: what was not read does not count."""
        most = self.left

        def work(job: _Job[K], given_up: Stop) -> dict[K, LogReading]:
            return job(most, lambda: given_up() or self._stop())

        found = _by_key(asked, calls.work({p: partial(work, job) for p, job in self._jobs(asked, opened).items()}))
        read = sum(r.read for r in found.values())
        self.left -= read
        self._bytes_read += read
        return _kept_problems({key: r.problem for key, r in found.items()})

    def _jobs(self, asked: Mapping[K, Overlap], opened: Mapping[str, OpenLogDir]) -> dict[str, _Job[K]]:
        if len(self.known) > _MOST_SEGMENTS:
            self.known.clear()
        paths = {o.dir.log_dir for o in asked.values()}
        return {
            path: partial(
                _read_logs, opened[path], {k: o for k, o in asked.items() if o.dir.log_dir == path}, self.known
            )
            for path in paths & opened.keys()
        }


_Job = Callable[[float, Stop], dict[K, LogReading]]


def _read_logs(
    log_dir: OpenLogDir, asked: Mapping[K, Overlap], known: SegmentReadings, most: float, stop: Stop
) -> dict[K, LogReading]:
    found: dict[K, LogReading] = {}
    for key, o in asked.items():
        with log_dir.acting("read", o.dir.name):
            fd = log_dir.open_child(o.dir.name, o.dir.identity)
            try:
                found[key] = read_log_between(fd, o.common, known, most, stop)
            finally:
                os.close(fd)
        most -= found[key].read
    return found


def _by_key(
    asked: Mapping[K, Overlap], looked: Mapping[str, dict[K, LogReading] | LogAgentError]
) -> dict[K, LogReading]:
    """Nothing that was asked for is missing: where a log dir gave no answer, that is what is wrong."""
    found: dict[K, LogReading] = {}
    for key, o in asked.items():
        there = looked.get(o.dir.log_dir)
        found[key] = there[key] if isinstance(there, dict) else LogReading(str(there or "its log dir is not open"))
    return found


def _kept_problems(problems: Mapping[K, str | None]) -> dict[K, str]:
    return {key: problem for key, problem in problems.items() if problem is not None}
