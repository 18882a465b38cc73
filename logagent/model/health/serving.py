"""When a broker that holds a log dir counts as serving, so that strays may be removed while it runs.

A holder is `starting` until it was positively seen serving: its own node id answers DescribeLogDirs for this log dir
without error, or it has every current, future, delete and stray directory open that existed when it took the lock. Age
alone never ends `starting` (a recovery can take hours), and after that `guard.settle` must pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from logagent.model.facts import LogDirFacts
from logagent.model.records import HolderState, Kind, PartitionDir

# A process's start time is computed from the boot time, which the kernel rounds to seconds.
SAME_START_MS = 2_000
# The longest time from process start to lock, even on a slow host. Directories created later need not be loaded.
LOCKED_WITHIN_MS = 600_000
_LOADED = (Kind.CURRENT, Kind.FUTURE, Kind.STRAY, Kind.DELETE)


@dataclass(frozen=True, slots=True)
class SeenHolder:
    """A process (PID and start time) that was seen holding a log dir's lock, or serving; since_ms: first seen so."""

    pid: int
    started_ms: int
    since_ms: int

    def is_process(self, pid: int, started_ms: int) -> bool:
        return self.pid == pid and abs(self.started_ms - started_ms) <= SAME_START_MS


def has_all_open(
    where: LogDirFacts,
    dirs: Iterable[PartitionDir],
    born_ms: Callable[[PartitionDir], int | None],
    locked_by_ms: int | None,
    now_ms: int,
) -> bool:
    """Whether the holder has a file open in every directory that it loads from this log dir, and in at least one.

    It need not load a directory created after `locked_by_ms` (when it is known to have had the lock). `born_ms` returns
    the creation time (all other times change during loading), None if the file system does not record it; it is called
    for directories that are not open, up to the first one that existed then, or may have.
    """
    pid = where.holder.pid
    loaded = [d for d in dirs if d.kind in _LOADED and d.log_dir == where.path]
    closed = [d for d in loaded if pid not in where.open_by.get(d.name, ())]

    def came_later(d: PartitionDir) -> bool:
        born = born_ms(d)
        return born is not None and locked_by_ms is not None and locked_by_ms < born <= now_ms

    return pid is not None and len(closed) < len(loaded) and all(map(came_later, closed))


def first_held(
    log_dirs: Mapping[str, LogDirFacts], known: Mapping[str, SeenHolder], now_ms: int
) -> dict[str, SeenHolder]:
    """By log dir, the process that has its lock now, and since when we have seen that."""
    found: dict[str, SeenHolder] = {}
    for path, where in log_dirs.items():
        pid, started_ms = where.holder.pid, where.holder.start_time_ms
        if where.holder.state is not HolderState.STARTING or pid is None or started_ms is None:
            continue
        before = known.get(path)
        same = before is not None and before.is_process(pid, started_ms) and before.since_ms <= now_ms
        found[path] = before if before is not None and same else SeenHolder(pid, started_ms, now_ms)
    return found


def locked_by_ms(holder: SeenHolder | None) -> int | None:
    """The time (ms) by which it had the lock: when we first saw it, or its start plus `LOCKED_WITHIN_MS` if earlier."""
    return None if holder is None else min(holder.since_ms, holder.started_ms + LOCKED_WITHIN_MS)


def serving_now(where: LogDirFacts, known: SeenHolder | None, *, seen: bool, now_ms: int) -> SeenHolder | None:
    """The serving holder after a look that did (`seen`) or did not find it serving.

    Once seen serving, a process counts as serving while it holds the lock; another process starts over. A `since_ms` in
    the future (the clock was set back) starts over too.
    """
    holder = where.holder
    if holder.state is not HolderState.STARTING or holder.pid is None or holder.start_time_ms is None:
        return None
    if known is not None and known.is_process(holder.pid, holder.start_time_ms) and known.since_ms <= now_ms:
        return known
    return SeenHolder(holder.pid, holder.start_time_ms, now_ms) if seen else None


def with_settled_holder(where: LogDirFacts, serving: SeenHolder, settle_ms: int, now_ms: int) -> LogDirFacts:
    """`where` with its holder HELD once `guard.settle` has passed since it was first seen serving; until then the
    holder's detail says how long that was."""
    seen_ms = now_ms - serving.since_ms
    if seen_ms >= settle_ms:
        return replace(where, holder=replace(where.holder, state=HolderState.HELD))
    detail = f"seen serving for {seen_ms // 1000} s, guard.settle is {settle_ms // 1000} s"
    return replace(where, holder=replace(where.holder, detail=detail))


def mark_serving(
    log_dirs: Mapping[str, LogDirFacts],
    known: Mapping[str, SeenHolder],
    seen: Callable[[LogDirFacts], bool],
    settle_ms: int,
    now_ms: int,
) -> tuple[dict[str, LogDirFacts], dict[str, SeenHolder]]:
    """The log dirs with serving holders distinguished from starting ones, and the serving holders to remember."""
    updated, noted = dict(log_dirs), {}
    for path, where in log_dirs.items():
        serving = serving_now(where, known.get(path), seen=seen(where), now_ms=now_ms)
        if serving is not None:
            noted[path] = serving
            updated[path] = with_settled_holder(where, serving, settle_ms, now_ms)
    return updated, noted
