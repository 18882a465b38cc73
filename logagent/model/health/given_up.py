"""When a broker counts as having given up a log dir. One rule for the guards, the daemon's probes and `check`.

Kafka takes a log dir offline by closing its logs and its lock (`LogManager.handleLogDirFailure`) and continues with the
others. So it has given up a log dir if it holds the lock of another one of the same node, while nobody holds this one
and no broker that holds the others has this `.lock` open. (If one has it open, somebody only unlinked the file.)

A starting or stopping broker takes or releases its locks one by one and looks the same for a moment. For a guard, this
suspicion is enough to leave the log dir alone. Calling the log dir offline needs certainty: the same result in `ROUNDS`
rounds in a row, or a broker that has run for `SETTLED_MS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from logagent.model.records import Holder, HolderState

ROUNDS = 2
SETTLED_MS = 30_000


@dataclass(frozen=True, slots=True)
class LockFacts:
    """The lock of one log dir. held: None if unknown. pid, started_ms: those of the holder, if known. open_by: PIDs
    that have `.lock` open, even an unlinked one; None if unknown."""

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
        """Whether the broker has run long enough for one look to be certain."""
        return self.started_ms is not None and now_ms - self.started_ms >= SETTLED_MS


def lock_facts(holder: Holder) -> LockFacts:
    """Derive the facts about the lock from its holder."""
    if holder.state in (HolderState.HELD, HolderState.STARTING):
        return LockFacts(True, holder.pid, holder.start_time_ms)
    if holder.state is HolderState.UNREADABLE:
        return LockFacts(None, open_by=None)
    return LockFacts(False, open_by=frozenset(holder.lock_open_by))


def given_up(locks: Mapping[str, LockFacts]) -> dict[str, GivenUp]:
    """Those of one node's log dirs (by path) that its running broker seems to have given up."""
    held = [lock for lock in locks.values() if lock.held]
    if not held:
        return {}
    pids = {lock.pid for lock in held}
    who = min(held, key=lambda lock: (lock.pid is None, lock.pid or 0))
    found = GivenUp(who.pid, who.started_ms)
    return {path: found for path, lock in locks.items() if lock.held is False and not _may_be_open(lock, pids)}


def _may_be_open(lock: LockFacts, pids: set[int | None]) -> bool:
    """Whether a holder of the others may have this `.lock` open; a holder with unknown PID may be any process."""
    if lock.open_by is None:
        return True
    return bool(lock.open_by & pids) or (None in pids and bool(lock.open_by))
