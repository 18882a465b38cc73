"""What would keep a broker from starting (`check`), and whether a log dir may leave (`check --leave`)."""

from __future__ import annotations

from typing import Any, Literal

from logagent.base.documents import Size, Time, TypedDict, strict
from logagent.base.records import Health, Kind, Verdict
from logagent.cleanup.commands.documents import MoveDoc


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
