"""Which levels of features a node reads when it starts: those in its newest metadata snapshot, in the log after it, and
in `bootstrap.checkpoint`.

Apart from `log.read_metadata_log`, because a log that is too new for verdicts, or damaged in what concerns topics, must
still say which releases can read it. Only records of features are decoded; of all other batches the header counts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace

from logagent.base.dir_names import METADATA_DIR
from logagent.base.errors import UnreadableError
from logagent.kafka.levels import KRAFT_VERSION
from logagent.kafka.metadata_log.batches import Batch, BatchDefect, FileShrank
from logagent.kafka.metadata_log.log import ATTEMPTS, ControlType, beginning, control_type, open_file, snapshots_of
from logagent.kafka.metadata_log.metadata_records import FeatureLevel, Reader, decode_record
from logagent.kafka.node_files import BOOTSTRAP, StartLevels

_Levels = dict[str, tuple[int, ...]]
_SEGMENT = re.compile(r"(\d{20})\.log")
# Frame version 1, type 12, version 0 of a FeatureLevelRecord; no other version may ever be written (its schema).
_A_FEATURE = bytes((1, 12, 0))


def read_start_levels(dir_fd: int) -> StartLevels:
    """Of the open metadata log dir `dir_fd`; raises only OSError from the disk.

    A running broker changes the files, so they are listed again when one is gone.
    """
    bootstrap, unread = _of_bootstrap(dir_fd)
    levels = StartLevels(bootstrap=bootstrap, unread=unread)
    try:
        log_fd = os.open(METADATA_DIR, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=dir_fd)
    except FileNotFoundError:
        return replace(levels, empty=True)
    except (NotADirectoryError, PermissionError) as error:
        return replace(levels, unread=f"{METADATA_DIR}: {error.strerror}")
    try:
        for _ in range(ATTEMPTS):
            try:
                return _of_log(log_fd, levels)
            except (FileNotFoundError, FileShrank):
                continue
            except (UnreadableError, BatchDefect, PermissionError) as error:
                return replace(levels, unread=f"{METADATA_DIR}: {error}")
    finally:
        os.close(log_fd)
    return replace(levels, unread=f"{METADATA_DIR} kept changing during {ATTEMPTS} attempts to read it")


def _of_bootstrap(dir_fd: int) -> tuple[_Levels, str | None]:
    levels: _Levels = {}
    try:
        with open_file(dir_fd, BOOTSTRAP) as file:
            for batch in file.batches(0, 0):
                _add(levels, batch)
    except FileNotFoundError:
        pass
    except (UnreadableError, BatchDefect, PermissionError) as error:
        # One that no node can read is a finding of its own.
        return levels, f"{BOOTSTRAP}: {error}"
    return levels, None


def _of_log(log_fd: int, levels: StartLevels) -> StartLevels:
    names = os.listdir(log_fd)
    snapshot = next(reversed(snapshots_of(names)), None)
    end, epoch = (int(snapshot[:20]), int(snapshot[21:31])) if snapshot is not None else (0, 0)
    in_snapshot: _Levels = {}
    if snapshot is not None:
        with open_file(log_fd, snapshot) as file:
            for batch in file.batches(0, 0):
                _add(in_snapshot, batch)
    # What a format writes into a snapshot at offset 0 counts until it is in the log. Of a dynamic quorum it has the
    # first voters, and kraft.version, which are in no log.
    in_log = in_snapshot if end > 0 else {n: found for n, found in in_snapshot.items() if n == KRAFT_VERSION}
    empty = end == 0
    for batch in _batches_after(log_fd, sorted(m[1] for m in map(_SEGMENT.fullmatch, names) if m), end):
        if batch.epoch < epoch:
            continue  # a start throws it away (`KafkaRaftLog.truncateToLatestSnapshot`)
        empty = False
        _add(in_log, batch, end)
    formatted = in_snapshot if empty and in_snapshot != in_log else {}
    return replace(levels, log=in_log, formatted=formatted, empty=empty)


def _batches_after(log_fd: int, bases: list[str], end: int) -> Iterator[Batch]:
    # The last one that begins at or before `end` may hold what comes after it.
    needed = bases[max(sum(int(base) <= end for base in bases) - 1, 0) :]
    for base in needed:
        with open_file(log_fd, f"{base}.log") as file:
            first, position = beginning(log_fd, file, int(base), end)
            try:
                yield from (batch for batch in file.batches(first, 0, position) if batch.next_offset > end)
            except BatchDefect:
                if base != needed[-1]:
                    raise  # a torn end of the last segment is cut off by a start


def _add(levels: _Levels, batch: Batch, end: int = 0) -> None:
    if not batch.control and not batch.raw.holds(_A_FEATURE):
        return
    for offset, key, value in batch.records():
        if offset < end:
            continue
        if batch.control:
            if control_type(key) == ControlType.KRAFT_VERSION:
                _level(levels, KRAFT_VERSION, _kraft_version(value))
        elif value is not None and value.startswith(_A_FEATURE):
            record = decode_record(value)
            if isinstance(record, FeatureLevel):
                _level(levels, record.name, record.level)


def _level(levels: _Levels, name: str, level: int) -> None:
    """A level that comes again is the last one now."""
    levels[name] = (*(other for other in levels.get(name, ()) if other != level), level)


def _kraft_version(value: bytes | None) -> int:
    """`KRaftVersionRecord`: its own version, then the level."""
    if value is None:
        raise UnreadableError("a KRaftVersion record is empty")
    reader = Reader(value)
    reader.int16()
    return reader.int16()
