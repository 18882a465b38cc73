"""Free space on a file system: which strays are removed early when it runs out, and how much a start needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from logagent.model.planning.plan import Proposal
from logagent.model.records import Kind, PartitionDir

# A start on xfs with 10 partitions failed with 148 KiB free and succeeded with 276 KiB (2.5.1); with 20 partitions it
# failed with 84 KiB free and used 168 KiB of 1 MiB (3.9.1). Epochs, indexes, producer snapshots and checkpoints grow
# with the partitions, so these values are several times what was observed.
_START_BYTES, _START_BYTES_PER_DIR = 1 << 20, 32 << 10
_START_INODES, _START_INODES_PER_DIR = 16, 4


@dataclass(frozen=True, slots=True)
class Room:
    """Bytes `used` on one file system, and `free` for users other than root."""

    used: int
    free: int


def under_pressure(
    early: Sequence[Proposal], due: Iterable[Proposal], rooms: Mapping[int, Room], level: float
) -> list[Proposal]:
    """Those of `early` (strays older than the floor, oldest first) that must be removed, after all that is `due`, for
    the usage of each file system to fall to `level`. `rooms` by device; an unknown device is not under pressure."""
    used = {device: room.used for device, room in rooms.items()}
    for p in due:
        if p.dir.device in used:
            used[p.dir.device] -= p.dir.allocated
    chosen: list[Proposal] = []
    for p in early:
        room = rooms.get(p.dir.device)
        if room is not None and used[p.dir.device] > level * (room.used + room.free):
            chosen.append(p)
            used[p.dir.device] -= p.dir.allocated
    return chosen


def needed_to_start(dirs: Iterable[PartitionDir]) -> tuple[int, int]:
    """Free bytes and inodes that any release needs to load these directories of one log dir: without them 2.5.1 does
    not start, and later releases take the log dir offline."""
    count = sum(d.kind in (Kind.CURRENT, Kind.FUTURE) for d in dirs)
    return _START_BYTES + count * _START_BYTES_PER_DIR, _START_INODES + count * _START_INODES_PER_DIR


def until_it_starts(removals: Sequence[Proposal], missing_bytes: int, missing_inodes: int) -> list[Proposal]:
    """The first of `removals` (of one log dir, in order) that free that much."""
    chosen: list[Proposal] = []
    for p in removals:
        if missing_bytes <= 0 and missing_inodes <= 0:
            break
        chosen.append(p)
        missing_bytes -= p.dir.allocated
        missing_inodes -= p.dir.files
    return chosen
