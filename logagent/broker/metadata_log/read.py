"""Reads snapshots and segments of a metadata log into one state, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from logagent.broker.metadata_log.batches import WINDOW, Batch, BatchDefect, BatchFile
from logagent.broker.metadata_log.index import position_before
from logagent.broker.metadata_log.quorum import ControlType, VoterCount, control_type, snapshot_time_ms
from logagent.broker.metadata_log.replay import Replay
from logagent.errors import UnreadableError
from logagent.files.safe_open import SEGMENT, opened_regular
from logagent.model.assignments.commitment import BatchTimes


@dataclass(slots=True)
class LogState:
    """The state gathered while reading a metadata log."""

    replay: Replay = field(default_factory=Replay)
    voters: VoterCount = field(default_factory=VoterCount)
    times: BatchTimes = field(default_factory=BatchTimes)
    snapshot: str | None = None
    snapshot_end: int = 0
    snapshot_ms: int | None = None
    end: int = 0
    at_ms: int | None = None
    written_ms: int | None = None
    torn_bytes: int = 0

    def apply(self, batch: Batch) -> None:
        """Apply a batch of the log, or the part of it after the snapshot."""
        self.replay.time_ms = batch.time_ms
        for offset, key, value in batch.records():
            if offset < self.snapshot_end:
                continue
            if batch.control:
                self.voters.see(control_type(key), value)
            else:
                self.replay.add(offset, value or b"")
        self.times.append(batch.next_offset, batch.time_ms, batch.epoch)
        self.end, self.at_ms = batch.next_offset, batch.time_ms


@contextmanager
def open_file(dir_fd: int, name: str) -> Iterator[BatchFile]:
    with opened_regular(name, SEGMENT, dir_fd=dir_fd) as fd:
        yield BatchFile(fd, name)


def read_snapshot(dir_fd: int, name: str) -> LogState:
    """Replay one snapshot; `BatchDefect` or `UnreadableError` unless it is complete from header to footer."""
    state = LogState(snapshot=name, snapshot_end=int(name[:20]), end=int(name[:20]))
    footer = False
    with open_file(dir_fd, name) as file:
        for batch in file.batches(0, 0):
            for offset, key, value in batch.records():
                if footer:
                    raise UnreadableError("records follow its footer")
                if not batch.control:
                    state.replay.add(offset, value or b"")
                    continue
                kind = control_type(key)
                if (offset == 0) != (kind == ControlType.SNAPSHOT_HEADER):
                    raise UnreadableError("it does not begin with its header")
                if kind == ControlType.SNAPSHOT_HEADER:
                    state.at_ms = state.snapshot_ms = snapshot_time_ms(value)
                footer = kind == ControlType.SNAPSHOT_FOOTER
                state.voters.see(kind, value)
            if state.at_ms is None:
                raise UnreadableError("it does not begin with its header")
    if not footer:
        raise UnreadableError("it has no footer: it was not written completely")
    if state.replay.open_transaction:
        raise UnreadableError("it ends within a transaction")
    state.replay.removals.clear()
    if state.replay.resigns_since is not None:
        state.replay.resigns_since = 0  # a snapshot has its own offsets, and is older than everything after it
    return state


def read_segments(dir_fd: int, state: LogState, bases: list[int]) -> None:
    expected, epoch = (bases[0] if bases else 0), 0
    for base in bases:
        name = f"{base:020}.log"
        if base != expected:
            raise UnreadableError(f"{name}: the log before it ends at offset {expected}")
        with open_file(dir_fd, name) as file:
            try:
                expected, position = _beginning(dir_fd, file, base, state.snapshot_end)
                for batch in file.batches(expected, epoch, position):
                    if batch.next_offset > state.snapshot_end:
                        state.apply(batch)
                    expected, epoch = batch.next_offset, batch.epoch
            except BatchDefect as defect:
                if base != bases[-1]:
                    raise UnreadableError(f"{name}: byte {defect.position}: {defect}") from defect
                _accept_torn_tail(file, defect, expected)
                state.torn_bytes = file.size - defect.position
            except UnreadableError as error:
                raise type(error)(f"{name}: {error}", hint=error.hint) from error


def _beginning(dir_fd: int, file: BatchFile, base: int, offset: int) -> tuple[int, int]:
    """Offset and byte position of a batch in this segment, at or before `offset` and as close to it as is known."""
    position = position_before(dir_fd, base, offset) if file.size > WINDOW else 0
    found = file.offset_at(position) if position else None
    return (found, position) if found is not None and base < found <= offset else (base, 0)


def _accept_torn_tail(file: BatchFile, defect: BatchDefect, expected: int) -> None:
    later = file.batch_after(defect.position, expected)
    if later is not None:
        raise UnreadableError(
            f"byte {defect.position}: {defect}, but records go on at byte {later}: the file is damaged"
        )
