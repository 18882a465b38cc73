"""What will be done and what was done: plans, queue, history.

In a row `bytes` is the sum of the file sizes and `allocated` what they take up on the file system; totals, and what is
or would be freed, are always allocated.
"""

from __future__ import annotations

from typing import Literal, NotRequired

from logagent.base.claims import Claim
from logagent.base.documents import AsOf, ClaimDoc, Size, Time, TypedDict, strict
from logagent.base.records import ActionKind, Outcome, Verdict
from logagent.cleanup.plan.plan import PlanGuard
from logagent.cleanup.plan.queue import Owner
from logagent.cleanup.rescue.rules import Step
from logagent.verdict.evidence.documents import AssignmentsUsed


@strict
class ActionDoc(TypedDict):
    """`claims`: what it rests on, as far as it concerns the directory and its broker; the same as of which time, the
    head says. `verdict`: as in `logagent.scan/2`, null for what has none; `fact`: of strays that are removed or
    marked, why it is so in words. `files`: of `remove-leftovers`, what is removed; the directory stays. The last four
    keys are present only in plans of `logagent rescue`."""

    id: str
    action: ActionKind
    log_dir: str
    name: str
    new_name: str | None
    topic: str | None
    partition: int | None
    topic_id: str | None
    reason: str
    bytes: Size
    allocated: Size
    sightings: int
    due_at: Time | None
    claims: list[ClaimDoc]
    outcome: Outcome | None
    error: str | None
    files: NotRequired[list[str]]
    verdict: NotRequired[Verdict | None]
    fact: NotRequired[str]
    step: NotRequired[Step]
    cost: NotRequired[str]
    gives_back: NotRequired[Size]
    shortens: NotRequired[str | None]


@strict
class RefusalDoc(TypedDict):
    """`claim`: what it lacks, if that is one; `command`: the line for a shell that is in `hint`, if there is one."""

    log_dir: str
    name: str
    guard: PlanGuard
    fact: str
    hint: str
    bytes: Size
    allocated: Size
    claim: Claim | None
    verdict: NotRequired[Verdict | None]
    command: NotRequired[str]


@strict
class WaitingDoc(TypedDict):
    log_dir: str
    name: str
    action: ActionKind
    reason: str
    until: Time | None
    sightings: int
    bytes: Size
    allocated: Size
    claim: Claim | None
    verdict: NotRequired[Verdict | None]


@strict
class PlanTotals(TypedDict):
    """`actions` counts directories; the `drop-checkpoint-entry` rows that accompany a rename are not counted.
    `bytes`, like `freed_bytes`, is what they have allocated on their file systems."""

    actions: int
    bytes: Size
    refusals: int
    waiting: int
    freed_bytes: Size


@strict
class RescueRoom(TypedDict):
    log_dir: str
    free: Size
    inodes_free: Size


@strict
class OpenRemovedDoc(TypedDict):
    """Bytes of removed files that process `pid` still has open; they are freed when it ends. `is_holder`: the process
    is the broker of this log dir. A process that also has something of `removed_by_hand` open is not listed."""

    log_dir: str
    pid: int
    program: str | None
    bytes: Size
    is_holder: bool


@strict
class RemovedByHandDoc(TypedDict):
    """A file that was removed by somebody else than its broker while process `pid` had it open: it may be the only copy
    of its records, and it is gone when that process ends. Copy `descriptor` (`/proc/PID/fd/N`) before anything
    restarts. `file`: what it was called, below `log_dir` (absolute if its directory had been moved out of it);
    `is_holder`: the process is the broker of this log dir."""

    log_dir: str
    file: str
    pid: int
    program: str | None
    descriptor: str
    bytes: Size
    allocated: Size
    is_holder: bool


@strict
class RetentionSteps(TypedDict):
    retention_ms: int
    gives_back: Size


@strict
class RetentionDoc(TypedDict):
    """Space that only a running broker can free: `command` sets the retention of one topic, `gives_back` is what that
    frees on this host, beyond what is past its present retention (`retention_now_ms`; -1: unlimited; null where it is
    not known: it may be lower, and then nothing is freed). `cleanup_policy`: null where it is not known; a compacted
    topic frees nothing."""

    topic: str
    bytes: Size
    cleanup_policy: str | None
    retention_ms: int
    retention_now_ms: int | None
    gives_back: Size
    command: str
    steps: list[RetentionSteps]


@strict
class ExpiredDoc(TypedDict):
    """What is past the retention of its topic: a running broker deletes it by itself."""

    topic: str
    bytes: Size
    retention_ms: int


@strict
class KeptDoc(TypedDict):
    """A directory or a file in a log dir that is not offered; `detail` is a fact that concerns only this one."""

    log_dir: str
    name: str
    reason: str
    detail: str | None
    bytes: Size


@strict
class CompactedDoc(TypedDict):
    """A topic of which no retention frees anything: its `cleanup.policy` has no `delete`."""

    topic: str
    bytes: Size
    cleanup_policy: str


@strict
class NoRetentionDoc(TypedDict):
    """A topic for which no retention is advised, because it is or may be tiered: a lower `retention.ms` would delete
    its remote records too."""

    topic: str
    bytes: Size
    reason: str


@strict
class RescueDoc(TypedDict):
    """`need`: what was asked for; `missing`: what of it the plan does not free, or (with `--execute`) was not freed;
    `gives_back`: the blocks of what the plan removes (those that a reflink or snapshot keeps count too); `came`: how
    many bytes more `statvfs` calls free now that it was carried out (null: it was not), which ends `need`, and
    `why_less`: what explains that it is less than `totals.freed_bytes`; `more`: what else could be freed. `room` is the
    state before, `room_after` (with `--execute`) the state now. `kept`: what is not offered.
    `unread_processes`: processes of other users, of which `open_removed` and `removed_by_hand` say nothing.
    `removed_by_hand`: data at risk, never counted as what can be freed. `local_retention`: as `retention`, the
    `local.retention.ms` of tiered topics, whose remote records stay; only what was copied there is freed."""

    need: Size | None
    missing: Size
    came: Size | None
    why_less: list[str]
    gives_back: Size
    more: Size
    room: list[RescueRoom]
    room_after: list[RescueRoom]
    removed_by_hand: list[RemovedByHandDoc]
    open_removed: list[OpenRemovedDoc]
    unread_processes: int
    retention: list[RetentionDoc]
    local_retention: list[RetentionDoc]
    expired: list[ExpiredDoc]
    compacted: list[CompactedDoc]
    no_retention: list[NoRetentionDoc]
    kept: list[KeptDoc]


@strict
class PlanDoc(TypedDict):
    """`name` and `log_dir` of a refusal are empty if the whole plan is refused (guard blast-radius)."""

    schema: Literal["logagent.plan/1"]
    at: Time
    host: str
    cluster_id: str | None
    node_id: int | None
    plan_id: str
    mode: Literal["dry-run", "execute"]
    assignments: AssignmentsUsed
    as_of: AsOf
    actions: list[ActionDoc]
    refusals: list[RefusalDoc]
    waiting: list[WaitingDoc]
    totals: PlanTotals
    rescue: NotRequired[RescueDoc]


@strict
class QueueEntryDoc(TypedDict):
    """`waits_for`: why it is not removed then (its log dir is offline, say); null if nothing else is in the way."""

    log_dir: str
    name: str
    topic: str | None
    full_topic: str | None
    partition: int | None
    bytes: Size
    allocated: Size
    marked_at: Time
    due_at: Time
    overdue_seconds: float
    attempts: int
    last_error: str | None
    owner: Owner
    waits_for: NotRequired[str | None]


@strict
class MoveDoc(TypedDict):
    """A move between log dirs: `name` in the log dir `to` becomes `partition` once it has all that `source`, the log
    dir of the current directory, has; null where that was not seen. The broker then removes the source. `copied_bytes`:
    in the segments of the copy, of `bytes`."""

    name: str
    partition: str
    source: str | None
    to: str
    copied_bytes: Size
    bytes: Size | None


@strict
class QueueDoc(TypedDict):
    schema: Literal["logagent.queue/1"]
    at: Time
    delay_ms: int
    next_due_at: Time | None
    entries: list[QueueEntryDoc]
    moves: list[MoveDoc]


@strict
class DatedClaimDoc(TypedDict):
    claim: str
    witness: str
    as_of: Time


@strict
class HistoryEntry(TypedDict):
    """`claims`: what it rested on; empty, and `allocated` null, for what older releases wrote."""

    id: int
    at: Time
    action: ActionKind
    log_dir: str
    name: str
    new_name: str | None
    topic: str | None
    partition: int | None
    topic_id: str | None
    bytes: Size
    allocated: Size | None
    plan_id: str
    actor: str
    outcome: Outcome | None
    finished_at: Time | None
    error: str | None
    claims: list[DatedClaimDoc]


@strict
class HistoryDoc(TypedDict):
    schema: Literal["logagent.history/1"]
    at: Time
    entries: list[HistoryEntry]
