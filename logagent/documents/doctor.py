"""What `logagent doctor` found."""

from __future__ import annotations

from typing import Literal

from logagent.documents.base import Time, TypedDict, strict
from logagent.documents.inventory import HolderDoc
from logagent.model.assignments.image import Source
from logagent.model.doctor.facts import DaemonState
from logagent.model.finding import Area
from logagent.model.records import Health


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
    """`lacks`: permissions that the agent's user does not have on it, in words."""

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
    """Whose rights were checked, and how that user was found. `service`: the daemon runs as that user."""

    name: str
    uid: int
    how: str
    service: bool


@strict
class DoctorService(TypedDict):
    """The unit of the daemon: as the running systemd has it in force, or as its files say (then `active` is null)."""

    unit: str
    known_by: Literal["systemd", "files"]
    user: str | None
    file: str
    active: str | None
    main_pid: int | None


@strict
class DoctorChange(TypedDict):
    """`line` (several where it has newlines) goes into `file`, in place of line `number` where that is given, below
    `section`; without a file it is a command for root. `then`: what makes it effective."""

    file: str | None
    number: int | None
    section: str | None
    line: str
    then: str | None


@strict
class DoctorFindingDoc(TypedDict):
    """Codes are stable; new ones may come."""

    area: Area
    state: Literal["works", "info", "warning", "fails"]
    code: str
    path: str
    says: str
    hint: str
    change: DoctorChange | None


@strict
class DoctorDoc(TypedDict):
    """`kafka_config` and what follows from it is null or empty where no broker, or several, were found. `at_least`: the
    broker is of `kafka_version` or later."""

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
