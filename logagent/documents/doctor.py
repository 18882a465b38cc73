"""What works on a host and what does not (`doctor`), and what would keep a broker from starting (`check`,
`prestart`)."""

from __future__ import annotations

from typing import Any, Literal

from logagent.documents.base import Size, Time, TypedDict, strict
from logagent.documents.inventory import HolderDoc
from logagent.documents.plans import PlanDoc
from logagent.model.assignments.image import Source
from logagent.model.doctor.doctor_facts import DaemonState
from logagent.model.finding import Area
from logagent.model.records import Health, Kind, Verdict


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
    server.properties, without the log dir."""

    schema: Literal["logagent.leave/1"]
    at: Time
    host: str
    log_dir: str
    may_leave: bool
    assignments_as_of: Time | None
    obstacles: list[ObstacleDoc]
    dirs: list[LeaveDirDoc]
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


@strict
class DoctorBroker(TypedDict):
    """A configuration of a broker on this host. `chosen`: the one that logagent uses; `how`: how it was found."""

    config: str
    how: str
    pid: int | None
    user: str | None
    unit: str | None
    kafka_version: str | None
    chosen: bool


@strict
class DoctorLogDir(TypedDict):
    """`lacks`: the permissions on it that the agent's user is missing, in words."""

    path: str
    health: Health
    reason: str | None
    holder: HolderDoc
    owner: str | None
    lacks: str | None
    mount_point: str | None
    file_system: str | None


@strict
class DoctorUser(TypedDict):
    """The user whose permissions were checked, and how that user was found. `service`: the daemon runs as that user."""

    name: str
    uid: int
    how: str
    service: bool


@strict
class DoctorService(TypedDict):
    """The daemon's unit as loaded by the running systemd, or as read from its files (then `active` is null)."""

    unit: str
    known_by: Literal["systemd", "files"]
    user: str | None
    file: str
    active: str | None
    main_pid: int | None


@strict
class DoctorChange(TypedDict):
    """Put `line` (it may contain newlines) into `file` below `section`, replacing line `number` if that is set. If
    `file` is null, `line` is a command to run as root. `then`: what makes the change effective."""

    file: str | None
    number: int | None
    section: str | None
    line: str
    then: str | None


@strict
class DoctorFindingDoc(TypedDict):
    """Codes are stable; new ones may be added."""

    area: Area
    state: Literal["works", "info", "warning", "fails"]
    code: str
    path: str
    says: str
    hint: str
    change: DoctorChange | None


@strict
class DoctorDoc(TypedDict):
    """`kafka_config` and everything derived from it is null or empty if no broker, or more than one, was found.
    `at_least`: the broker runs `kafka_version` or later."""

    schema: Literal["logagent.doctor/1"]
    at: Time
    host: str
    agent_version: str
    config: str | None
    kafka_config: str | None
    state_dir: str
    user: DoctorUser
    brokers: list[DoctorBroker]
    kafka_version: str | None
    kafka_version_from: str | None
    at_least: bool
    cluster_id: str | None
    node_id: int | None
    log_dirs: list[DoctorLogDir]
    service: DoctorService | None
    daemon: DaemonState
    assignments_source: Source | Literal["none"]
    assignments_age_seconds: float | None
    findings: list[DoctorFindingDoc]
