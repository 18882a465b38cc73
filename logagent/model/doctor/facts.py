"""What `logagent doctor` saw of a host: everything that its findings are made from, gathered once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from logagent.model.assignments.image import Source
from logagent.model.health.kafka_version import UNKNOWN_VERSION, KafkaVersion, Version
from logagent.model.records import Health, HolderState

DaemonState = Literal["running", "none", "dead", "refused", "silent"]


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a file that sets something: the one to change."""

    file: str
    number: int | None
    value: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigLook:
    """Our own configuration. file: the one in force (None: defaults), default: where it would be written. keys: the
    line of each `section.key` in it, set or commented out. problems: of it and of server.properties. instance: NAME of
    `logagent@NAME`. named: the broker's configuration was named, not found; log_dirs_named: on the command line."""

    file: str | None
    default: str
    keys: Mapping[str, int] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    hint: str | None = None
    instance: str | None = None
    kafka_config: str | None = None
    named: bool = False
    log_dirs_named: bool = False
    mode: str = "report"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLook:
    """A broker's configuration on this host. overrides: keys that its command line sets over the file. ignored: why a
    process that calls itself a broker is not taken for one."""

    config: str
    how: str
    pid: int | None = None
    user: str | None = None
    unit: str | None = None
    unit_file: str | None = None
    version: Version | None = None
    chosen: bool = False
    candidate: bool = True
    overrides: tuple[str, ...] = ()
    ignored: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectLook:
    """The user whose rights are looked at. how: how we know. service: it is the one the daemon runs as."""

    name: str
    uid: int
    gid: int
    how: str
    service: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HolderLook:
    """A process that holds log dirs of ours.

    command: what runs, for people. config: the server.properties it was started with (None: it is no Kafka broker, or
    that cannot be told), ours: whether that is the one we use. proc: whether the subject may read what it has open:
    "readable", "hidden" (no /proc entry is shown), or "refused". capabilities (the permitted ones) and dumpable decide
    that where both run as one user. overrides: `key=value` that its command line sets over the file.
    """

    pid: int
    command: str
    user: str | None = None
    uid: int | None = None
    gid: int | None = None
    kafka: bool = True
    config: str | None = None
    ours: bool | None = None
    overrides: tuple[str, ...] = ()
    proc: str = "readable"
    capabilities: int = 0
    dumpable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class MountLook:
    """Where a path lies. read_only: this mount of it (a bind mount, a sandbox); device_read_only: the file system."""

    point: str
    kind: str
    source: str
    read_only: bool = False
    device_read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessLook:
    """What the subject may do with a path. lacks: "read", "write", "search" or several in words, None where all is
    well; at: the directory or file that stands in the way. answered: False where nothing came back in time. write: it
    has to be written to."""

    path: str
    what: str
    lacks: str | None = None
    at: str | None = None
    owner: str | None = None
    mode: int | None = None
    exists: bool = True
    answered: bool = True
    write: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirLook:
    """One log dir. others: directories in it that the subject may not empty, of which `example` is one."""

    path: str
    health: Health
    reason: str | None
    holder: HolderState
    holder_detail: str | None = None
    pid: int | None = None
    started_ms: int | None = None
    owner: str | None = None
    owner_uid: int | None = None
    access: AccessLook | None = None
    mount: MountLook | None = None
    others: int = 0
    example: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceLook:
    """The unit of our daemon. known_by: "systemd" or "files". properties: as `systemctl show` names them. user_place:
    the line that sets `User=`. main_pid: of the running service; sandbox: its own view of the mounts of paths we need.
    setup: how the drop-in of `logagent setup` fits, None where there is none and none is needed, or it cannot be told.
    """

    unit: str
    known_by: Literal["systemd", "files"]
    user: str | None
    file: str
    user_place: Place | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    active: str | None = None
    main_pid: int | None = None
    sandbox: Mapping[str, MountLook] = field(default_factory=dict)
    setup: SetupLook | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupLook:
    """The drop-in of `logagent setup`. state: "missing" where the unit does not start without one, "differs" where it
    would be written in other words now, "refused" where it would not be written (`why`). command: writes it."""

    place: str
    state: Literal["fits", "missing", "differs", "refused"]
    command: str
    why: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcLook:
    """How `/proc` is mounted: hidepid as the kernel prints it (None: everything is shown), gid: who is exempt."""

    hidepid: str | None = None
    gid: int | None = None
    group: str | None = None
    exempt: bool = False
    fstab: Place | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonLook:
    """What answers at the status socket: "running", "none", "refused" (we may not ask), "silent", "dead"."""

    socket: str
    state: DaemonState
    pid: int | None = None
    version: str | None = None
    log_dirs: tuple[str, ...] | None = None
    mode: str | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PortLook:
    """Whether metrics can be offered. problem: "taken", "not-local", "not-permitted", or the system's words. next_free:
    a port that can be had."""

    listen: str
    problem: str | None = None
    by: str | None = None
    ours: bool = False
    next_free: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StateLook:
    """The state dir. journal_schema: of the journal there, where it can be read; foreign: log dirs in it that are none
    of this broker's."""

    path: str
    exists: bool
    access: AccessLook | None = None
    made_by_unit: bool = False
    in_log_dir: str | None = None
    full: bool = False
    journal: bool = False
    journal_schema: int | None = None
    known_schema: int = 0
    foreign: tuple[str, ...] = ()
    service_path: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentsLook:
    """Where verdicts come from. bootstrap: an address of the broker's listeners; secure: it wants more than plain text.
    stopped: nobody holds a log dir. kraft: the broker keeps a metadata log of its own while it runs.
    empty: it was read, and names no topic."""

    usable: bool
    source: Source | Literal["none"] = "none"
    age_seconds: float | None = None
    max_age_seconds: float = 0.0
    partitions: int = 0
    problems: tuple[str, ...] = ()
    bootstrap: str | None = None
    bootstrap_set: bool = False
    secure: bool = False
    stopped: bool = False
    kraft: bool = False
    empty: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SiblingLook:
    """Another configuration of ours on this host and what it shares with this one. number: the line of kafka.config."""

    file: str
    number: int | None = None
    log_dirs: tuple[str, ...] = ()
    listen: bool = False
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorFacts:
    """Everything at once."""

    config: ConfigLook
    brokers: tuple[BrokerLook, ...] = ()
    subject: SubjectLook
    holders: tuple[HolderLook, ...] = ()
    kafka_version: KafkaVersion = UNKNOWN_VERSION
    cluster_id: str | None = None
    node_id: int | None = None
    cluster_problems: tuple[str, ...] = ()
    log_dirs: tuple[LogDirLook, ...] = ()
    service: ServiceLook | None = None
    proc: ProcLook = field(default_factory=ProcLook)
    daemon: DaemonLook | None = None
    port: PortLook | None = None
    state: StateLook | None = None
    assignments: AssignmentsLook | None = None
    files: tuple[AccessLook, ...] = ()
    siblings: tuple[SiblingLook, ...] = ()
    root: bool = False
