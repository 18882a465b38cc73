"""When did a broker give up a log dir? One rule for the guards, the daemon's probes and `check`.

Kafka takes a log dir offline by closing its logs and its lock (`LogManager.handleLogDirFailure`) and goes on with the
others. So it gave up a log dir when it holds the lock of another one of the same node, while nobody holds this one and
none of the brokers that hold the others has its `.lock` open. (One that is still open was only unlinked by somebody.)

A broker that starts or stops takes and leaves its locks one after the other and looks the same for a moment. For a
guard this suspicion is enough to leave the log dir alone. Whoever calls the log dir offline for good needs certainty:
the same in `ROUNDS` looks in a row, or a broker that has run for `SETTLED_MS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from logagent.model.records import Holder, HolderState

ROUNDS = 2
SETTLED_MS = 30_000


@dataclass(frozen=True, slots=True)
class LockFacts:
    """The lock of one log dir. held: None where that cannot be told. pid, started_ms: of the holder, where it is known.
    open_by: processes that have `.lock` open, an unlinked one too; None where that cannot be told."""

    held: bool | None
    pid: int | None = None
    started_ms: int | None = None
    open_by: frozenset[int] | None = frozenset()


@dataclass(frozen=True, slots=True)
class GivenUp:
    """The broker that gave a log dir up."""

    pid: int | None
    started_ms: int | None

    @property
    def reason(self) -> str:
        who = "the running broker" if self.pid is None else f"the running broker (process {self.pid})"
        return f"{who} holds other log dirs but not this one: it gave it up"

    def is_settled(self, now_ms: int) -> bool:
        """Whether the broker has run long enough that one look is certain."""
        return self.started_ms is not None and now_ms - self.started_ms >= SETTLED_MS


def lock_facts(holder: Holder) -> LockFacts:
    """What a look at the holder says of the lock."""
    if holder.state in (HolderState.HELD, HolderState.STARTING):
        return LockFacts(True, holder.pid, holder.start_time_ms)
    if holder.state is HolderState.UNREADABLE:
        return LockFacts(None, open_by=None)
    return LockFacts(False, open_by=frozenset(holder.lock_open_by))


def given_up(locks: Mapping[str, LockFacts]) -> dict[str, GivenUp]:
    """Of the log dirs of one node (by path), those that its running broker seems to have given up."""
    held = [lock for lock in locks.values() if lock.held]
    if not held:
        return {}
    pids = {lock.pid for lock in held}
    who = min(held, key=lambda lock: (lock.pid is None, lock.pid or 0))
    found = GivenUp(who.pid, who.started_ms)
    return {path: found for path, lock in locks.items() if lock.held is False and not _may_be_open(lock, pids)}


def _may_be_open(lock: LockFacts, pids: set[int | None]) -> bool:
    """Whether a holder of the others may have this `.lock` open; of one without a known PID any process may be it."""
    if lock.open_by is None:
        return True
    return bool(lock.open_by & pids) or (None in pids and bool(lock.open_by))
