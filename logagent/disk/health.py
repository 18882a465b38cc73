"""The state of a log dir, decided from one round of probes and the previous state.

The first failure wins and stays the reason until the log dir is back. Deviation from Kafka, which waits for a restart:
a log dir comes back after `health.recovery_probes` good probes in a row, all of the same directory, and a complete scan
that was started after them. Full and read-only are separate states, not offline: directories can still be removed from
a full log dir, and in a read-only one nothing can be done, so it is harmless.

The result of one probe of a log dir holds facts only; the state is decided from several of them.

When a broker counts as having given up a log dir. One rule for the guards, the daemon's probes and `check`.

Kafka takes a log dir offline by closing its logs and its lock (`LogManager.handleLogDirFailure`) and continues with the
others. So it has given up a log dir if it holds the lock of another one of the same node, while nobody holds this one
and no broker that holds the others has this `.lock` open. (If one has it open, somebody only unlinked the file.)

A starting or stopping broker takes or releases its locks one by one and looks the same for a moment. For a guard, this
suspicion is enough to leave the log dir alone. Calling the log dir offline needs certainty: the same result in `ROUNDS`
rounds in a row, or a broker that has run for `SETTLED_MS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from logagent.base.records import Health, Holder, HolderState, Identity
from logagent.kafka.identity import MetaRead


class ProbeOutcome(StrEnum):
    """GOOD: it works (as far as `ProbeResult.wrote` says). FULL: no block or inode is left for an ordinary user, or
    the quota is used up. READ_ONLY: mounted read-only. FAILED: the disk returned an error, or the path no longer leads
    to the directory that was opened. HUNG: no answer within the time limit."""

    GOOD = "good"
    FULL = "full"
    READ_ONLY = "read-only"
    FAILED = "failed"
    HUNG = "hung"


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """One probe of one log dir.

    ms: how long it took, in milliseconds; if it hangs, how long we waited. reason: what went wrong, None if nothing
    did. wrote: whether a file was written, made durable and read back; if False, only reading was tried, and `limited`
    says why. errno: that of a failure.
    """

    path: str
    outcome: ProbeOutcome
    ms: float
    reason: str | None = None
    wrote: bool = False
    limited: str | None = None
    errno: int | None = None


TRIAL_PREFIX = ".logagent-trial-"
REMOVE_OPEN = "remove a file that is open"
SYNC_FOLDER = "sync a folder"
"""The name of the file of a trial (`probe.broken_steps`), and steps of which not every release dies."""

_BY_OUTCOME = {
    ProbeOutcome.GOOD: Health.ONLINE,
    ProbeOutcome.FULL: Health.FULL,
    ProbeOutcome.READ_ONLY: Health.READ_ONLY,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbedLogDir:
    """The findings of one round about a log dir.

    identity, meta: those of the directory that the path leads to now, None if it could not be inspected. given_up: why
    the running broker seems to have given it up. failed: the failure that one of our actions recorded. hanging: one of
    our calls timed out and has not returned. scanned: the directory that was completely scanned since the last probe
    that was not good.
    """

    probe: ProbeResult
    identity: Identity | None = None
    meta: MetaRead | None = None
    given_up: str | None = None
    failed: str | None = None
    hanging: bool = False
    scanned: Identity | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirState:
    """One log dir after a round. `reason`: why it is not ONLINE; while it is offline, its first failure.

    identity, meta: those from when it was last online; while it is offline, `identity` is that of the last good probe.
    good_probes: good probes in a row, counted while it is offline. suspected: rounds in a row in which the broker
    seemed to have given it up.
    """

    path: str
    health: Health
    reason: str | None
    since_ms: int
    good_probes: int = 0
    suspected: int = 0
    identity: Identity | None = None
    meta: MetaRead | None = None

    def wants_scan(self, recovery_probes: int) -> bool:
        """Whether it needs only a complete scan to come back."""
        return self.health is Health.OFFLINE and self.good_probes >= recovery_probes


def next_state(
    path: str, before: LogDirState | None, seen: ProbedLogDir, now_ms: int, recovery_probes: int
) -> LogDirState:
    """The state after a round. `before`: the previous state, None in the first round."""
    suspected = (before.suspected if before is not None else 0) + 1 if seen.given_up is not None else 0
    if before is not None and before.health is Health.OFFLINE:
        if not _is_good(before, seen):
            return replace(before, good_probes=0, identity=None, suspected=suspected)
        in_a_row = before.good_probes + 1 if before.identity in (None, seen.identity) else 1
        if before.wants_scan(recovery_probes) and in_a_row > 1 and seen.scanned == seen.identity:
            return _online(before.path, None, seen, now_ms, suspected)
        return replace(before, good_probes=in_a_row, identity=seen.identity, suspected=suspected)
    failure = _failure(before, seen, suspected)
    if failure is None:
        return _online(path, before, seen, now_ms, suspected)
    return LogDirState(
        path=path,
        health=Health.OFFLINE,
        reason=failure,
        since_ms=now_ms,
        suspected=suspected,
        meta=before.meta if before is not None else None,
    )


def _failure(before: LogDirState | None, seen: ProbedLogDir, suspected: int) -> str | None:
    """Why a log dir that was online is offline now."""
    read_only = seen.probe.outcome is ProbeOutcome.READ_ONLY
    if seen.failed is not None and not (read_only and not seen.hanging):
        return seen.failed
    if seen.probe.outcome not in _BY_OUTCOME:
        return seen.probe.reason or "the probe failed"
    if before is not None:
        if None not in (before.identity, seen.identity) and before.identity != seen.identity:
            return "its path now leads to another directory (was it unmounted, mounted over or replaced?)"
        changed = _changed(before.meta, seen.meta)
        if changed is not None:
            return changed
    return seen.given_up if suspected >= ROUNDS else None


def _changed(known: MetaRead | None, now: MetaRead | None) -> str | None:
    """What happened to the `meta.properties` of a log dir that had one."""
    if known is None or known.missing or known.error is not None or now is None:
        return None
    if now.missing:
        return "its meta.properties is gone"
    if now.error is not None:
        return f"its meta.properties can no longer be read: {now.error}"
    # An upgrade adds new entries, such as the directory id (3.7).
    ids = ((known.cluster_id, now.cluster_id), (known.node_id, now.node_id), (known.directory_id, now.directory_id))
    if all(was is None or was == is_now for was, is_now in ids):
        return None
    return "its meta.properties has changed: is it another disk?"


def _online(path: str, before: LogDirState | None, seen: ProbedLogDir, now_ms: int, suspected: int) -> LogDirState:
    health, reason = _BY_OUTCOME[seen.probe.outcome], seen.probe.reason
    if health is not Health.READ_ONLY and seen.meta is not None and seen.meta.missing:
        health, reason = Health.UNFORMATTED, "there is no meta.properties"
    same = before is not None and before.health is health
    return LogDirState(
        path=path,
        health=health,
        reason=None if health is Health.ONLINE else reason,
        since_ms=before.since_ms if before is not None and same else now_ms,
        suspected=suspected,
        identity=seen.identity if seen.identity is not None or before is None else before.identity,
        meta=seen.meta if seen.meta is not None or before is None else before.meta,
    )


def _is_good(before: LogDirState, seen: ProbedLogDir) -> bool:
    """Whether this probe counts towards bringing an offline log dir back."""
    if seen.hanging or seen.given_up is not None or seen.identity is None or seen.meta is None:
        return False
    if seen.probe.outcome not in _BY_OUTCOME or seen.probe.errno is not None:
        return False
    return _is_same_node(before.meta, seen.meta)


def _is_same_node(known: MetaRead | None, now: MetaRead) -> bool:
    """Whether the directory there now belongs to the same node as before. A replacement disk has another directory id,
    and no `meta.properties` at all until it is formatted."""
    if known is None or known.missing or known.error is not None:
        return True
    return not now.missing and now.error is None and (now.cluster_id, now.node_id) == (known.cluster_id, known.node_id)


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
    if holder.state.is_broker:
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
