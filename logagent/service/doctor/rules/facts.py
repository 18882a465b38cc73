"""What `logagent doctor` knows about a host: everything that its findings are made from, gathered once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from logagent.base.kafka_version import UNKNOWN_VERSION, KafkaVersion, Version
from logagent.base.records import Health, HolderState, LogDoubt
from logagent.kafka.image import Source
from logagent.service.setup.rules import DropInFacts
from logagent.verdict.without_directory import NOTHING_MISSING, Missing

DaemonState = Literal["running", "none", "dead", "refused", "silent"]


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a file that contains a setting and would have to be changed."""

    file: str
    number: int | None
    value: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFacts:
    """Our own configuration. file: the one in force (None: defaults), default: where it would be written. keys: the
    line of each `section.key` in it, set or commented out. problems: in it and in server.properties. instance: NAME of
    `logagent@NAME`. named: whether the broker's configuration was given rather than found; named_in_file: by the
    file in force, which the daemon reads too. log_dirs_named: whether log dirs were given on the command line."""

    file: str | None
    default: str
    keys: Mapping[str, int] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    hint: str | None = None
    instance: str | None = None
    kafka_config: str | None = None
    named: bool = False
    named_in_file: bool = False
    log_dirs_named: bool = False
    mode: str = "report"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFacts:
    """A broker's configuration on this host. ignored: why a process
    that seems to be a broker is not treated as one."""

    config: str
    how: str
    pid: int | None = None
    user: str | None = None
    unit: str | None = None
    version: Version | None = None
    chosen: bool = False
    candidate: bool = True
    ignored: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectFacts:
    """The user whose permissions are checked. how: how that user was found. service: the daemon runs as that user."""

    name: str
    uid: int
    gid: int
    how: str
    service: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HolderFacts:
    """A process that holds some of our log dirs.

    command: what it runs, for display. config: the server.properties it was started with (None: unknown, or not a Kafka
    broker); same_config: whether that is the one we use. proc: whether the subject can see its open files: "readable",
    "hidden" (no /proc entry is visible), or "refused". If both run as the same user, this depends on capabilities (the
    permitted ones) and dumpable. overrides: `key=value` pairs on its command line that override the file.
    """

    pid: int
    command: str
    user: str | None = None
    uid: int | None = None
    gid: int | None = None
    kafka: bool = True
    config: str | None = None
    same_config: bool | None = None
    overrides: tuple[str, ...] = ()
    proc: str = "readable"
    capabilities: int = 0
    dumpable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class MountFacts:
    """The mount of a path. read_only: this mount (a bind mount, a sandbox) is; device_read_only: the file system is."""

    point: str
    kind: str
    source: str
    read_only: bool = False
    device_read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessFacts:
    """What the subject may do with a path. lacks: "read", "write", "search" or several of them in words, None if
    nothing is missing; at: the directory or file that denies it. answered: False if there was no answer in time.
    write: whether write access is needed."""

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
class DoctorLogDirFacts:
    """One log dir. others: the number of directories in it that the subject may not write to; example: one of them."""

    path: str
    health: Health
    reason: str | None
    holder: HolderState
    holder_detail: str | None = None
    pid: int | None = None
    started_ms: int | None = None
    owner: str | None = None
    owner_uid: int | None = None
    access: AccessFacts | None = None
    mount: MountFacts | None = None
    others: int = 0
    example: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceFacts:
    """The unit of our daemon. known_by: "systemd" or "files". properties: as named by `systemctl show`. user_place: the
    line that sets `User=`. main_pid: of the running service; sandbox: the mounts of the paths we need as it sees them.
    setup: whether the drop-in of `logagent setup` fits; None if there is none and none is needed, or if unknown.
    """

    unit: str
    known_by: Literal["systemd", "files"]
    user: str | None
    file: str
    user_place: Place | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    active: str | None = None
    main_pid: int | None = None
    sandbox: Mapping[str, MountFacts] = field(default_factory=dict)
    setup: DropInFacts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcFacts:
    """How `/proc` is mounted: hidepid as the kernel prints it (None: nothing is hidden), gid: the exempt group."""

    hidepid: str | None = None
    gid: int | None = None
    group: str | None = None
    exempt: bool = False
    fstab: Place | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonFacts:
    """The daemon behind the status socket. state: "running", "none", "refused" (no permission), "silent", "dead".
    reload_failed: why it did not take the configuration when it was last asked to."""

    socket: str
    state: DaemonState
    pid: int | None = None
    version: str | None = None
    log_dirs: tuple[str, ...] | None = None
    mode: str | None = None
    detail: str | None = None
    clock_doubt: str | None = None
    reload_failed: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PortFacts:
    """Whether metrics can be served. problem: "taken", "not-local", "not-permitted", or the system's error message.
    by_daemon: our own daemon serves them there. next_free: an available port."""

    listen: str
    problem: str | None = None
    by: str | None = None
    by_daemon: bool = False
    next_free: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StateDirFacts:
    """The state dir. full: there is no room for a journal. no_reserve: the journal has no reserve, and there is no room
    for one. journal_schema: the schema version of its journal, if readable. foreign: log dirs in the journal that are
    not this broker's. forgotten: a log dir that it remembers and the broker's configuration does not name any more, and
    what to do."""

    path: str
    exists: bool
    access: AccessFacts | None = None
    made_by_unit: bool = False
    in_log_dir: str | None = None
    full: bool = False
    no_reserve: bool = False
    journal: bool = False
    journal_schema: int | None = None
    known_schema: int = 0
    foreign: tuple[str, ...] = ()
    forgotten: tuple[str, str] | None = None
    service_path: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentsFacts:
    """The source of verdicts. bootstrap: an address of one of the broker's listeners; secure: that listener is not
    PLAINTEXT. stopped: nobody holds a log dir. kraft: the broker has its own metadata log and updates it while it runs.
    empty: the source was read and lists no topics. ends_at_stop: it ends when the broker stopped, and why no living one
    could be asked. not_our_lineage: the metadata log contradicts what is remembered of it, or ends before that."""

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
    ends_at_stop: str | None = None
    not_our_lineage: bool = False
    log_doubt: LogDoubt | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceFacts:
    """Another logagent configuration on this host and what both share. number: the line of kafka.config in it."""

    file: str
    number: int | None = None
    log_dirs: tuple[str, ...] = ()
    listen: bool = False
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorFacts:
    """All facts about one host. `missing`: what a start would make anew."""

    config: ConfigFacts
    brokers: tuple[BrokerFacts, ...] = ()
    subject: SubjectFacts
    holders: tuple[HolderFacts, ...] = ()
    kafka_version: KafkaVersion = UNKNOWN_VERSION
    cluster_id: str | None = None
    node_id: int | None = None
    cluster_problems: Mapping[str, str] = field(default_factory=dict)
    by_node: bool = False
    log_dirs: tuple[DoctorLogDirFacts, ...] = ()
    service: ServiceFacts | None = None
    proc: ProcFacts = field(default_factory=ProcFacts)
    daemon: DaemonFacts | None = None
    port: PortFacts | None = None
    state: StateDirFacts | None = None
    assignments: AssignmentsFacts | None = None
    files: tuple[AccessFacts, ...] = ()
    siblings: tuple[InstanceFacts, ...] = ()
    missing: Missing = NOTHING_MISSING
    root: bool = False
