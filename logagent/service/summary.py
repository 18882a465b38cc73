"""What the daemon knows after a tick, as plain values: metrics, `logagent status` and log lines are made from these.

Times are in ms since the epoch, durations in seconds, sizes in bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from logagent.base.records import Health, Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentsSummary:
    """`source` is None if none could be read; then `problem` says why. `log_doubt`: why the metadata log on this host
    proves less than it should. `own_log`: whether there is such a log, read or not."""

    source: str | None = None
    at_ms: int | None = None
    usable: bool = False
    problem: str | None = None
    log_doubt: Reason | None = None
    own_log: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSummary:
    """What is marked for deletion in one log dir. `bytes`: allocated."""

    entries: int = 0
    bytes: int = 0
    oldest_marked_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSummary:
    """Which broker this host is, by its log dirs, and the version that counts for decisions; None: not known."""

    cluster_id: str | None = None
    node_id: int | None = None
    version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleSummary:
    """What one cycle saw, planned and did.

    job: "cleanup", or "queue" for the delete queue alone. ledgers: by log dir, the figures of `logagent.scan/1`.
    sharing: log dirs on the file system of another one, at which its figures count. kafka: the broker of this host.
    directories: (log dir, kind) -> number. orphans: (log dir, reason) -> (number, allocated bytes). reclaimable:
    (log dir, "now" or "later") -> allocated bytes of what the plan would remove, and of what waits. results: (action,
    outcome) -> number. refusals: guard -> number, including that of the whole plan; refused_because: guard -> its
    first refusal. queues: by log dir. next_due_ms: when the head of the queue falls due. open_exchanges:
    paths of what an interrupted `restore --replace` displaced. clock_doubt: why nothing is done that depends on an age.
    error: why the cycle ended early (journal, executor lock); nothing more was done then. error_slug: the slug of that
    error (`LogAgentError.slug`, such as "journal"), by which metrics and alerts distinguish errors.
    """

    job: str
    mode: str
    started_ms: int
    seconds: float
    plan_id: str | None = None
    planned: int = 0
    ledgers: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    sharing: frozenset[str] = frozenset()
    kafka: KafkaSummary = KafkaSummary()
    directories: Mapping[tuple[str, str], int] = field(default_factory=dict)
    orphans: Mapping[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    reclaimable: Mapping[tuple[str, str], int] = field(default_factory=dict)
    results: Mapping[tuple[str, str], int] = field(default_factory=dict)
    refusals: Mapping[str, int] = field(default_factory=dict)
    refused_because: Mapping[str, Reason] = field(default_factory=dict)
    waiting: int = 0
    queues: Mapping[str, QueueSummary] = field(default_factory=dict)
    next_due_ms: int | None = None
    freed_bytes: int = 0
    needs_approval: str | None = None
    open_exchanges: tuple[str, ...] = ()
    assignments: AssignmentsSummary = AssignmentsSummary()
    clock_doubt: str | None = None
    error: str | None = None
    error_slug: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishSummary:
    """One attempt to deliver the spool to the fleet store.

    sent: files delivered by this attempt (snapshots and assignments). waiting, waiting_bytes: what is still spooled.
    dropped: snapshots dropped since the daemon started, because the spool was full. last_sent_ms: when the last file
    was delivered. error: why this attempt ended before the spool was empty.
    """

    at_ms: int
    seconds: float
    sent: int = 0
    waiting: int = 0
    waiting_bytes: int = 0
    dropped: int = 0
    last_sent_ms: int | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirSummary:
    """One log dir after a round of probes. `probed`: not where we lacked what a probe takes (`limited` says what)."""

    path: str
    health: Health
    reason: str | None
    since_ms: int
    probe_ms: float | None
    wrote: bool
    limited: str | None
    good_probes: int
    probed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthSummary:
    """One round of probes of every log dir. `changed`: those whose state has changed since the last round."""

    at_ms: int
    seconds: float
    log_dirs: tuple[LogDirSummary, ...]
    changed: tuple[str, ...] = ()

    @property
    def offline(self) -> tuple[str, ...]:
        return tuple(d.path for d in self.log_dirs if d.health is Health.OFFLINE)
