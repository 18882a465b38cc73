"""The state of a log dir, decided from one round of probes and the previous state.

The first failure wins and stays the reason until the log dir is back. Deviation from Kafka, which waits for a restart:
a log dir comes back after `health.recovery_probes` good probes in a row, all of the same directory, and a complete scan
that was started after them. Full and read-only are separate states, not offline: directories can still be removed from
a full log dir, and in a read-only one nothing can be done, so it is harmless.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from logagent.model.assignments.cluster import MetaLook
from logagent.model.health.given_up import ROUNDS
from logagent.model.health.probe_result import ProbeOutcome, ProbeResult
from logagent.model.records import Health, Identity

_BY_OUTCOME = {
    ProbeOutcome.GOOD: Health.ONLINE,
    ProbeOutcome.FULL: Health.FULL,
    ProbeOutcome.READ_ONLY: Health.READ_ONLY,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The findings of one round about a log dir.

    identity, meta: those of the directory that the path leads to now, None if it could not be inspected. given_up: why
    the running broker seems to have given it up. failed: the failure that one of our actions recorded. hanging: one of
    our calls timed out and has not returned. scanned: the directory that was completely scanned since the last probe
    that was not good.
    """

    probe: ProbeResult
    identity: Identity | None = None
    meta: MetaLook | None = None
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
    meta: MetaLook | None = None

    def wants_scan(self, recovery_probes: int) -> bool:
        """Whether it needs only a complete scan to come back."""
        return self.health is Health.OFFLINE and self.good_probes >= recovery_probes


def next_state(path: str, before: LogDirState | None, seen: Seen, now_ms: int, recovery_probes: int) -> LogDirState:
    """The state after a round. `before`: the previous state, None in the first round."""
    suspected = (before.suspected if before is not None else 0) + 1 if seen.given_up is not None else 0
    if before is not None and before.health is Health.OFFLINE:
        return _while_offline(before, seen, now_ms, recovery_probes, suspected)
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


def _failure(before: LogDirState | None, seen: Seen, suspected: int) -> str | None:
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


def _changed(known: MetaLook | None, now: MetaLook | None) -> str | None:
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


def _online(path: str, before: LogDirState | None, seen: Seen, now_ms: int, suspected: int) -> LogDirState:
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


def _while_offline(before: LogDirState, seen: Seen, now_ms: int, recovery_probes: int, suspected: int) -> LogDirState:
    if not _is_good(before, seen):
        return replace(before, good_probes=0, identity=None, suspected=suspected)
    in_a_row = before.good_probes + 1 if before.identity in (None, seen.identity) else 1
    if before.wants_scan(recovery_probes) and in_a_row > 1 and seen.scanned == seen.identity:
        return _online(before.path, None, seen, now_ms, suspected)
    return replace(before, good_probes=in_a_row, identity=seen.identity, suspected=suspected)


def _is_good(before: LogDirState, seen: Seen) -> bool:
    """Whether this probe counts towards bringing an offline log dir back."""
    if seen.hanging or seen.given_up is not None or seen.identity is None or seen.meta is None:
        return False
    if seen.probe.outcome not in _BY_OUTCOME or seen.probe.errno is not None:
        return False
    return _is_same_node(before.meta, seen.meta)


def _is_same_node(known: MetaLook | None, now: MetaLook) -> bool:
    """Whether the directory there now belongs to the same node as before. A replacement disk has another directory id,
    and no `meta.properties` at all until it is formatted."""
    if known is None or known.missing or known.error is not None:
        return True
    return not now.missing and now.error is None and (now.cluster_id, now.node_id) == (known.cluster_id, known.node_id)
