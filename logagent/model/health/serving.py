"""When a broker that holds a log dir counts as serving, so that strays may be removed while it runs.

A holder is `starting` until it said itself, over the network, that it serves this log dir (DescribeLogDirs without an
error): brokers answer only once every log is loaded. No look from outside shows that. A broker that has a file open in
every directory may still be recovering one of them, and a stray that is removed then ends it (`LogManager.loadLogs`).
Age alone never ends `starting` (a recovery can take hours), and after the answer `guard.settle` must pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from logagent.model.facts import LogDirFacts
from logagent.model.records import HolderState

# A process's start time is computed from the boot time, which the kernel rounds to seconds.
SAME_START_MS = 2_000


@dataclass(frozen=True, slots=True)
class SeenHolder:
    """A process (PID and start time) that was seen holding a log dir's lock, or serving; since_ms: first seen so."""

    pid: int
    started_ms: int
    since_ms: int

    def is_process(self, pid: int, started_ms: int) -> bool:
        return self.pid == pid and abs(self.started_ms - started_ms) <= SAME_START_MS


def known_to_serve(where: LogDirFacts, known: SeenHolder | None, now_ms: int) -> bool:
    """Whether the process that holds the lock is the one that was seen serving. What it has loaded stays loaded;
    another process starts over, and so does one that was seen in the future (the clock was set back)."""
    pid, started_ms = where.holder.pid, where.holder.start_time_ms
    if known is None or pid is None or started_ms is None:
        return False
    return known.is_process(pid, started_ms) and known.since_ms <= now_ms


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
    serves: Callable[[str], str | None],
    settle_ms: int,
    now_ms: int,
) -> tuple[dict[str, LogDirFacts], dict[str, SeenHolder]]:
    """The log dirs with serving holders distinguished from starting ones, and the serving holders to remember.

    `serves`: asks the broker about a log dir; returns why it is not known to serve that, None if it serves. Asked only
    about holders that are not known to serve yet.
    """
    updated, noted = dict(log_dirs), dict[str, SeenHolder]()
    for path, where in log_dirs.items():
        holder = where.holder
        if holder.state is not HolderState.STARTING:
            continue
        before = known.get(path)
        if before is not None and known_to_serve(where, before, now_ms):
            noted[path] = before
        elif holder.pid is None or holder.start_time_ms is None:
            continue
        elif (why := serves(path)) is None:
            noted[path] = SeenHolder(holder.pid, holder.start_time_ms, now_ms)
        else:
            updated[path] = replace(where, holder=replace(holder, detail=holder.detail or why))
        if path in noted:
            updated[path] = with_settled_holder(where, noted[path], settle_ms, now_ms)
    return updated, noted
