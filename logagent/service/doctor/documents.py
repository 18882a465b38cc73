"""What works on a host and what does not: `doctor`."""

from __future__ import annotations

from typing import Literal

from logagent.advice.documents import HolderDoc
from logagent.advice.finding import Area
from logagent.base.documents import Time, TypedDict, strict
from logagent.base.records import Health
from logagent.kafka.image import Source
from logagent.service.doctor.rules.host import DaemonState


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
