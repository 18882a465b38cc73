"""When does a broker that holds a log dir count as serving, so that its strays may be removed under it?

A holder is `starting` until it was positively seen serving: its own node id answers DescribeLogDirs for this log dir
without error, or it has every current, future, delete and stray directory open that was there when it took the lock.
Age alone never ends `starting` (a recovery can take hours), and `guard.settle` is waited in addition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from logagent.model.facts import LogDirFacts
from logagent.model.records import HolderState, Kind, PartitionDir

# A process's start time is computed from the boot time, which the kernel rounds to seconds.
SAME_START_MS = 2_000
# From its start as a process to its lock, however slow the host is. A directory made later was not there to be loaded.
LOCKED_WITHIN_MS = 600_000
_LOADED = (Kind.CURRENT, Kind.FUTURE, Kind.STRAY, Kind.DELETE)


@dataclass(frozen=True, slots=True)
class Serving:
    """A process (PID and start time) that was seen serving, and since when we know (ms)."""

    pid: int
    started_ms: int
    since_ms: int

    def is_process(self, pid: int, started_ms: int) -> bool:
        return self.pid == pid and abs(self.started_ms - started_ms) <= SAME_START_MS


def has_all_open(
    where: LogDirFacts, dirs: Iterable[PartitionDir], born_ms: Callable[[PartitionDir], int | None], now_ms: int
) -> bool:
    """Whether the holder has a file of every directory open that it loads from this log dir. One at least must be.

    `born_ms` says when a directory was made (its times change while it is loaded), None where that is not kept. It is
    asked about those that are not open, up to the first one that was there, or may have been.
    """
    pid, started_ms = where.holder.pid, where.holder.start_time_ms
    loaded = [d for d in dirs if d.kind in _LOADED and d.log_dir == where.path]
    closed = [d for d in loaded if pid not in where.open_by.get(d.name, ())]

    def came_later(d: PartitionDir) -> bool:
        born = born_ms(d)
        return born is not None and started_ms is not None and started_ms + LOCKED_WITHIN_MS < born <= now_ms

    return pid is not None and len(closed) < len(loaded) and all(map(came_later, closed))


def serving_now(where: LogDirFacts, known: Serving | None, *, seen: bool, now_ms: int) -> Serving | None:
    """What is known after a look that did (`seen`) or did not see the holder serve.

    A process once seen serving stays so while it holds the lock; another process starts over. A `since` in the
    future (a clock was set back) starts over too.
    """
    holder = where.holder
    if holder.state is not HolderState.STARTING or holder.pid is None or holder.start_time_ms is None:
        return None
    if known is not None and known.is_process(holder.pid, holder.start_time_ms) and known.since_ms <= now_ms:
        return known
    return Serving(holder.pid, holder.start_time_ms, now_ms) if seen else None


def with_settled_holder(where: LogDirFacts, serving: Serving, settle_ms: int, now_ms: int) -> LogDirFacts:
    """`where` with its holder HELD once `guard.settle` has passed since it was first seen serving; until then it says
    how long it was seen."""
    seen_ms = now_ms - serving.since_ms
    if seen_ms >= settle_ms:
        return replace(where, holder=replace(where.holder, state=HolderState.HELD))
    detail = f"seen serving for {seen_ms // 1000} s, guard.settle is {settle_ms // 1000} s"
    return replace(where, holder=replace(where.holder, detail=detail))


def tell_serving(
    log_dirs: Mapping[str, LogDirFacts],
    known: Mapping[str, Serving],
    seen: Callable[[LogDirFacts], bool],
    settle_ms: int,
    now_ms: int,
) -> tuple[dict[str, LogDirFacts], dict[str, Serving]]:
    """The log dirs with their holders told apart, and what is to be remembered of those that serve."""
    told, noted = dict(log_dirs), {}
    for path, where in log_dirs.items():
        serving = serving_now(where, known.get(path), seen=seen(where), now_ms=now_ms)
        if serving is not None:
            noted[path] = serving
            told[path] = with_settled_holder(where, serving, settle_ms, now_ms)
    return told, noted
