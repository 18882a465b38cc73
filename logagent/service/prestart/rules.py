"""Free space on a file system: how much a start needs, and which directories prestart removes to make room for it.

A start comes before the renames: where the blast radius does not leave room for both, the renames wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from logagent.base.records import LIVE_KINDS, DirKey, PartitionDir
from logagent.base.units import NOTHING, Space
from logagent.cleanup.plan.assemble import BlastRadius, blast_radius, within_limits
from logagent.cleanup.plan.plan import Proposal, Refusal
from logagent.verdict.facts import Facts

# A start on xfs with 10 partitions failed with 148 KiB free and succeeded with 276 KiB (2.5.1); with 20 partitions it
# failed with 84 KiB free and used 168 KiB of 1 MiB (3.9.1). Epochs, indexes, producer snapshots and checkpoints grow
# with the partitions, so these values are several times what was observed.
_START_BYTES, _START_BYTES_PER_DIR = 1 << 20, 32 << 10
_START_INODES, _START_INODES_PER_DIR = 16, 4


def needed_to_start(dirs: Iterable[PartitionDir]) -> Space:
    """What any release needs free to load these directories of one log dir: without it 2.5.1 does not start, and later
    releases take the log dir offline."""
    count = sum(d.kind in LIVE_KINDS for d in dirs)
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
    gains: Mapping[DirKey, Space],
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
    lacks: Mapping[int, Space], removed: Iterable[Proposal], gains: Mapping[DirKey, Space]
) -> dict[int, Space]:
    """What each device lacks once `removed` has given back its `gains`."""
    left = dict(lacks)
    for p in removed:
        left[p.dir.device] = left.get(p.dir.device, NOTHING).less(gains.get(p.key, NOTHING))
    return left


@dataclass(frozen=True, slots=True)
class Removals:
    """`chosen`: what is removed now; `possible`: that, and what may be removed too if it turns out not to suffice;
    `beyond`: what would help, but exceeds the blast radius. `renames`: those that are made beside them; `stop`: why
    there are none, if they would exceed it together with `chosen`."""

    chosen: Sequence[Proposal]
    possible: Sequence[Proposal]
    beyond: Sequence[Proposal]
    renames: Sequence[Proposal]
    stop: Refusal | None = None


def to_make_room(
    due: Sequence[Proposal],
    renames: Sequence[Proposal],
    lacking: Mapping[int, Space],
    gains: Mapping[DirKey, Space],
    facts: Facts,
    limits: BlastRadius,
) -> Removals:
    """What of `due` (removals, the safest first) is removed, and which of `renames` are made. The guards permit each
    of them.

    Of four ways the first that leaves least lacking: the safest first, else the largest; beside the renames, else
    without them. Nothing is chosen that exceeds `limits` together with what is made beside it. If nothing may be
    removed, the renames stay as they are, even if they exceed `limits` themselves.
    """
    helpful = [p for p in due if helps(gains.get(p.key, NOTHING), lacking.get(p.dir.device, NOTHING))]
    largest = sorted(helpful, key=lambda p: -gains[p.key].bytes)
    found: list[tuple[tuple[int, int, int], Removals]] = []
    for beside, order in product((renames, ()), (helpful, largest)):
        way = _one_way(order, beside, lacking, gains, within_limits(beside, facts, limits))
        found.append((_short(way, lacking, gains), way))
    _, best = min(found, key=lambda way: way[0])
    left = _without(renames, best.chosen)
    if len(best.renames) == len(left):
        return best
    return replace(best, stop=blast_radius([*best.chosen, *left], facts, limits))


def _one_way(
    order: Sequence[Proposal],
    beside: Sequence[Proposal],
    lacking: Mapping[int, Space],
    gains: Mapping[DirKey, Space],
    may_join: Callable[[Proposal], bool],
) -> Removals:
    chosen = until_it_starts(order, lacking, gains, may_join)
    more = [p for p in _without(order, chosen) if may_join(p)]
    possible = [*chosen, *more]
    return Removals(chosen, possible, _without(order, possible), _without(beside, chosen))


def _without(proposals: Sequence[Proposal], others: Sequence[Proposal]) -> list[Proposal]:
    keys = {p.key for p in others}
    return [p for p in proposals if p.key not in keys]


def _short(way: Removals, lacking: Mapping[int, Space], gains: Mapping[DirKey, Space]) -> tuple[int, int, int]:
    """On how many file systems a broker still lacks room to start, and how much."""
    left = [lack for lack in still_lacking(lacking, way.chosen, gains).values() if lack]
    total = sum(left, NOTHING)
    return len(left), total.bytes, total.inodes
