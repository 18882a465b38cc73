"""What is on a host and what it belongs to (`scan`), what would keep its broker from starting (`check`), whether a log
dir may leave (`check --leave`), and what `prestart` did while the broker was about to start.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from logagent.base.claims import Claim, Witness
from logagent.base.documents import AsOf, Size, Time, TypedDict, strict
from logagent.base.records import Health, HolderState, Kind, Verdict
from logagent.cleanup.commands.documents import MoveDoc, PlanDoc
from logagent.verdict.evidence.documents import AssignmentsUsed
from logagent.verdict.rules import VerdictReason


@strict
class HolderDoc(TypedDict):
    state: HolderState
    pid: int | None
    start_time: Time | None


@strict
class Ledger(TypedDict):
    """What the bytes of a log dir's file system are used for. `size`, `used`, `free` and `unexplained` are of the file
    system, which log dirs with the same `device` share: add them up once. `unexplained` = used − what all of those log
    dirs have (may be negative)."""

    size: Size
    used: Size
    free: Size
    current: Size
    future: Size
    stray: Size
    delete: Size
    other: Size
    open_removed: Size
    unexplained: int


@strict
class LogDirDoc(TypedDict):
    """`device`: the number of its file system (it may be another one after a reboot), null where it is offline. Log
    dirs with the same one share its `size`, `used` and `free`."""

    path: str
    device: int | None
    directory_id: str | None
    health: Health
    reason: str | None
    holder: HolderDoc
    ledger: Ledger | None


@strict
class DirDoc(TypedDict):
    """`claim`, `witness`: what the verdict says and who said so, as of the time that the head gives for that witness;
    null where there is no verdict, or one that rests on nothing. `detail`: of strays and copies, what it rests on in
    words."""

    log_dir: str
    name: str
    kind: Kind
    topic: str | None
    topic_truncated: bool
    full_topic: str | None
    partition: int | None
    uuid: str | None
    topic_id: str | None
    bytes: Size
    allocated: Size
    files: Size
    segments: Size
    newest_mtime: Time | None
    marked_at: Time | None
    first_offset: int | None
    last_segment_offset: int | None
    sightings: int
    first_seen: Time | None
    in_use: bool | None
    verdict: Verdict | None
    reason: VerdictReason | None
    claim: NotRequired[Claim | None]
    witness: NotRequired[Witness | None]
    error: str | None
    detail: NotRequired[str | None]


@strict
class WithoutDirectoryDoc(TypedDict):
    """What is assigned to this node and has no current directory here. `only_copy`: no other replica is in sync; null
    if the assignments do not say. `future`: the path of its `-future` directory, null if there is none."""

    topic: str
    partition: int
    topic_id: str | None
    only_copy: bool | None
    future: NotRequired[str | None]


@strict
class ForgottenLogDirDoc(TypedDict):
    """A log dir that `log.dirs` does not name any more. `path` or `directory_id` is null where it is unknown.
    `partitions`: those that are assigned to it, or lie in it, and have no directory elsewhere here; a start makes them
    anew, empty. `known`: false where that is only possible. `only_copies`: how many of them are not known to have
    another replica in sync; null if no assignments were read."""

    path: str | None
    directory_id: str | None
    known: bool
    known_by: str
    partitions: list[str]
    only_copies: Size | None


@strict
class Scan(TypedDict):
    """`unread_processes`: processes of other users that could not be read: `open_removed` lacks what they hold open,
    which is then in `unexplained`; null: nobody could look."""

    schema: Literal["logagent.scan/2"]
    at: Time
    host: str
    agent_version: str
    cluster_id: str | None
    node_id: int | None
    kafka_version: str | None
    assignments: AssignmentsUsed
    as_of: AsOf
    unread_processes: NotRequired[int | None]
    log_dirs: list[LogDirDoc]
    without_directory: NotRequired[list[WithoutDirectoryDoc]]
    forgotten_log_dirs: NotRequired[list[ForgottenLogDirDoc]]
    dirs: list[DirDoc]


@strict
class CheckLogDir(TypedDict):
    path: str
    health: Health
    reason: str | None
    probe_ms: float | None


@strict
class FindingDoc(TypedDict):
    severity: Literal["fatal", "warning", "info"]
    code: str
    path: str
    kafka_versions: str
    says: str
    hint: str


@strict
class CheckDoc(TypedDict):
    schema: Literal["logagent.check/1"]
    at: Time
    kafka_version: str | None
    log_dirs: list[CheckLogDir]
    findings: list[FindingDoc]


@strict
class ObstacleDoc(TypedDict):
    code: str
    says: str
    hint: str


@strict
class LeaveDirDoc(TypedDict):
    """A directory that is still in the log dir. `only_copy`: no other broker has a replica in sync. `to`: the log dir
    to which `reassignment` moves it; `stays`: why it is not in there."""

    name: str
    kind: Kind
    topic: str | None
    partition: int | None
    topic_id: str | None
    allocated: Size
    verdict: Verdict | None
    only_copy: bool | None
    to: str | None
    stays: str | None


@strict
class LeaveDoc(TypedDict):
    """Whether `log_dir` may be taken out of `log.dirs`: only without `obstacles`. `reassignment`: the JSON for
    `kafka-reassign-partitions.sh`, with the replicas as of `assignments_as_of`. `cordon`: the command that cordons the
    log dir, where the broker knows such a thing; `uncordon`: the one that takes that back. `line`: of
    server.properties, without the log dir. `moves`: into it and out of it."""

    schema: Literal["logagent.leave/1"]
    at: Time
    host: str
    log_dir: str
    may_leave: bool
    assignments_as_of: Time | None
    obstacles: list[ObstacleDoc]
    dirs: list[LeaveDirDoc]
    moves: list[MoveDoc]
    reassignment: dict[str, Any] | None
    cordon: str | None
    uncordon: str | None
    line: str | None


@strict
class PrestartDoc(TypedDict):
    """If time or permissions did not suffice for a plan, `plan` is null and `skipped` says why; `hint`, where there is
    one, what to do about it. `settled_by_plan`: those of `findings` that keep a broker from starting only until a
    plan that was not carried out (a dry run) makes room."""

    schema: Literal["logagent.prestart/1"]
    at: Time
    budget_ms: int
    spent_ms: int
    skipped: str | None
    hint: str | None
    plan: PlanDoc | None
    findings: list[FindingDoc]
    settled_by_plan: list[FindingDoc]
