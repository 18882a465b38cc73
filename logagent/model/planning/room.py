"""Free space on a file system: how much a start needs, and which removals make room for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from logagent.model.planning.plan import Proposal
from logagent.model.records import Kind, PartitionDir
from logagent.model.space import NOTHING, Space

Key = tuple[str, str]

# A start on xfs with 10 partitions failed with 148 KiB free and succeeded with 276 KiB (2.5.1); with 20 partitions it
# failed with 84 KiB free and used 168 KiB of 1 MiB (3.9.1). Epochs, indexes, producer snapshots and checkpoints grow
# with the partitions, so these values are several times what was observed.
_START_BYTES, _START_BYTES_PER_DIR = 1 << 20, 32 << 10
_START_INODES, _START_INODES_PER_DIR = 16, 4


def needed_to_start(dirs: Iterable[PartitionDir]) -> Space:
    """What any release needs free to load these directories of one log dir: without it 2.5.1 does not start, and later
    releases take the log dir offline."""
    count = sum(d.kind in (Kind.CURRENT, Kind.FUTURE) for d in dirs)
    return Space(_START_BYTES + count * _START_BYTES_PER_DIR, _START_INODES + count * _START_INODES_PER_DIR)


@dataclass(frozen=True, slots=True)
class StartRoom:
    """The log dirs of one file system: what is free for users other than root, and what a start may need."""

    log_dirs: tuple[str, ...]
    free: Space
    need: Space

    @property
    def lacks(self) -> Space:
        return self.need.less(self.free)


def room_to_start(
    dirs: Sequence[PartitionDir], devices: Mapping[str, int], free: Mapping[str, Space]
) -> dict[int, StartRoom]:
    """By device, for the log dirs of which `free` is known. The needs of those on one file system add up."""
    found: dict[int, StartRoom] = {}
    for path, space in free.items():
        need = needed_to_start(d for d in dirs if d.log_dir == path)
        before = found.get(devices[path])
        if before is not None:
            found[devices[path]] = StartRoom((*before.log_dirs, path), space, before.need + need)
        else:
            found[devices[path]] = StartRoom((path,), space, need)
    return found


def until_it_starts(
    removals: Sequence[Proposal],
    lacks: Mapping[int, Space],
    gains: Mapping[Key, Space],
    allowed: Callable[[Proposal], bool] = lambda p: True,
) -> list[Proposal]:
    """The first of `removals`, in order, with which each device gets what it lacks; one that gives back nothing of that
    is left out. `allowed`: whether the blast radius leaves room for one more, asked for each that is needed."""
    left = dict(lacks)
    chosen: list[Proposal] = []
    for p in removals:
        lack, gain = left.get(p.dir.device, NOTHING), gains.get(p.key, NOTHING)
        if helps(gain, lack) and allowed(p):
            chosen.append(p)
            left[p.dir.device] = lack.less(gain)
    return chosen


def helps(gain: Space, lack: Space) -> bool:
    """Whether `gain` has any of what is lacking."""
    return min(lack.bytes, gain.bytes) > 0 or min(lack.inodes, gain.inodes) > 0


def still_lacking(
    lacks: Mapping[int, Space], removed: Iterable[Proposal], gains: Mapping[Key, Space]
) -> dict[int, Space]:
    """What each device lacks once `removed` has given back its `gains`."""
    left = dict(lacks)
    for p in removed:
        left[p.dir.device] = left.get(p.dir.device, NOTHING).less(gains.get(p.key, NOTHING))
    return left
