"""What `logagent doctor` found."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from logagent.documents.base import Document, HealthName, Time
from logagent.documents.inventory import HolderDoc


class DoctorBroker(Document):
    """A configuration of a broker on this host. `chosen`: the one that logagent uses; `how`: how it was found."""

    config: str
    how: str
    pid: int | None
    user: str | None
    unit: str | None
    kafka_version: str | None
    chosen: bool


class DoctorLogDir(Document):
    """`lacks`: permissions that the agent's user does not have on it, in words."""

    path: str
    health: HealthName
    reason: str | None
    holder: HolderDoc
    owner: str | None
    lacks: str | None
    mount_point: str | None
    file_system: str | None


class DoctorUser(Document):
    """Whose rights were looked at, and how that user was found. `service`: the daemon runs as that user."""

    name: str
    uid: int
    how: str
    service: bool


class DoctorService(Document):
    """The unit of the daemon: as the running systemd has it in force, or as its files say (then `active` is null)."""

    unit: str
    known_by: Literal["systemd", "files"]
    user: str | None
    file: str
    active: str | None
    main_pid: int | None


class DoctorChange(Document):
    """`line` (several where it has newlines) goes into `file`, in place of line `number` where that is given, below
    `section`; without a file it is a command for root. `then`: what makes it effective."""

    file: str | None
    number: int | None
    section: str | None
    line: str
    then: str | None


class DoctorFindingDoc(Document):
    """Codes are stable; new ones may come."""

    area: str
    state: Literal["works", "info", "warning", "fails"]
    code: str
    path: str
    says: str
    hint: str
    change: DoctorChange | None


class DoctorDoc(Document):
    """`kafka_config` and what follows from it is null or empty where no broker, or several, were found. `at_least`: the
    broker is of `kafka_version` or later."""

    schema_: Literal["logagent.doctor/1"] = Field(alias="schema")
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
    daemon: Literal["running", "none", "dead", "refused", "silent"]
    assignments_source: Literal["kraft-log", "admin", "file", "none"]
    assignments_age_seconds: float | None
    findings: list[DoctorFindingDoc]
