"""The facts that decide whether a node starts: its configuration, its log dirs, and what is wrong with the files that
it reads there."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import StrEnum

from logagent.base.kafka_version import UNKNOWN_VERSION, KafkaVersion
from logagent.base.records import Denied, DirKey, Health, Holder, HolderState, Identity, PartitionDir, TopicPartition
from logagent.kafka.identity import DEFAULT_RESERVED_MAX_ID
from logagent.kafka.image import MetadataFault, StartLevels
from logagent.kafka.retention.settings import NOTHING_SET, Layers
from logagent.verdict.without_directory import NOTHING_MISSING, Missing


class MetaState(StrEnum):
    """State of a `meta.properties`. MALFORMED: it exists, but no broker can parse it."""

    READ = "read"
    MISSING = "missing"
    MALFORMED = "malformed"
    UNREADABLE = "unreadable"


class CheckpointFault(StrEnum):
    """How an offset checkpoint is broken. MALFORMED raises an `IOException` in Kafka, NUMBER another exception; FIFO:
    who opens it waits for ever."""

    FIFO = "fifo"
    MALFORMED = "malformed"
    NUMBER = "number"


@dataclass(frozen=True, slots=True)
class MetaFile:
    state: MetaState
    version: int | None = None
    cluster_id: str | None = None
    node_id: int | None = None
    directory_id: str | None = None
    error: str | None = None


NO_META = MetaFile(MetaState.MISSING)


class LoadFile(StrEnum):
    """What a broker fails on when it loads a log dir. TAIL: bytes behind the last batch. ABORTED: the index of aborted
    transactions. PLACE: something else (a directory, a symlink that leads nowhere, a FIFO) where it needs a file.
    AHEAD: the same where it will need one. LARGE: a segment or an index above 2 GiB. SWAP: a half-done replacement of
    segments by what is no batch; TORN_SWAP: by what looks like a batch that was cut off; EMPTY_SWAP: by nothing.
    MARKER: an empty directory for the clean-shutdown marker."""

    TAIL = "tail"
    ABORTED = "aborted"
    PLACE = "place"
    AHEAD = "ahead"
    LARGE = "large"
    SWAP = "swap"
    TORN_SWAP = "torn-swap"
    EMPTY_SWAP = "empty-swap"
    MARKER = "marker"


@dataclass(frozen=True, slots=True)
class LoadFault:
    """`name`: below the log dir, or below the partition directory as long as that is known."""

    file: LoadFile
    name: str
    error: str


NOBODY = Holder(HolderState.FREE)


class Mode(StrEnum):
    KRAFT = "kraft"
    ZOOKEEPER = "zookeeper"


class PathProblem(StrEnum):
    """Why a configured path cannot be opened as a directory. MISSING: its last component does not exist. CLOSED: we may
    not open it, which says nothing about its disk."""

    MISSING = "missing"
    DANGLING = "dangling"
    NOT_A_DIRECTORY = "not-a-directory"
    CLOSED = "closed"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class StartServerFacts:
    """The node's configuration. Without one, `mode` and `log_dirs_text` are None.

    log_dirs_text: the value of `log.dirs` (or `log.dir`) as written. metadata_log_dir: as written; None in ZooKeeper
    mode. runs_controller, controller_only: by `process.roles`; a controller loads no partitions. generates_id,
    reserved_max_id: `broker.id.generation.enable` and `reserved.broker.max.id`, which only count in ZooKeeper mode.
    may_migrate: `zookeeper.metadata.migration.enable`, on or not readable. names_quorum: it says where the controllers
    are.
    """

    mode: Mode | None = None
    node_id: int | None = None
    log_dirs_text: str | None = None
    metadata_log_dir: str | None = None
    config: str | None = None
    runs_controller: bool = False
    controller_only: bool = False
    generates_id: bool = True
    reserved_max_id: int = DEFAULT_RESERVED_MAX_ID
    may_migrate: bool = False
    names_quorum: bool = True


@dataclass(frozen=True, slots=True)
class FreeSpace:
    """Space on a file system for an unprivileged user. `inodes` is 0 if the file system does not count them."""

    size: int
    free: int
    inodes: int
    inodes_free: int


@dataclass(frozen=True, slots=True)
class StartLogDirFacts:
    """One log dir, or (`holds_logs` False) a separate `metadata.log.dir`.

    holds_metadata: it is the `metadata.log.dir`; metadata_only: and partitions are never in it. metadata_log: there is
    a metadata log in it, its own or a stray one. broken_epochs: `leader-epoch-checkpoint` of partition directories that
    Kafka cannot read, by directory. canonical: the path with symlinks resolved. holder_is_broker: whether the holder is
    a Kafka broker that holds every log dir, so the broker in question (None: nobody holds it, or that is unknown).
    given_up_by: the PID of the running broker, if it holds the other log dirs but not this one. checkpoints: the broken
    ones with their error. dir_links: symlinks in it that lead to a directory, with their targets. odd_files:
    `DIRECTORY/FILE` of files named like segment files but without an offset before the suffix. followed_ids: topic ids
    (None: it has none) of directories whose id an inventory does not read because a link or a mount leads to it, as a
    broker reads them; what is not here could not be read. not_seen: directories
    that we are not permitted to read. leftovers: our own temp files. places: the identity of the
    directory that a link or a mount leads to, by its name. mounted:
    names of directories that are mount points themselves. mount_point: of the file system that it is on, by the mount
    table; None if that is unknown. file_system: its kind, from there; cannot: what a trial showed that a broker needs
    and it cannot, with the error; None if it was not tried. fixed: what of it and its partition directories is
    "immutable" or "append-only", by path. levels: where there is the metadata log, the features that it names.
    """

    path: str
    canonical: str | None = None
    holds_logs: bool = True
    holds_metadata: bool = False
    metadata_only: bool = False
    metadata_log: bool = False
    broken_epochs: Mapping[str, tuple[CheckpointFault, str]] = field(default_factory=dict)
    metadata_faults: tuple[MetadataFault, ...] = ()
    levels: StartLevels | None = None
    problem: PathProblem | None = None
    detail: str | None = None
    health: Health = Health.ONLINE
    holder: Holder = NOBODY
    holder_is_broker: bool | None = None
    given_up_by: int | None = None
    meta: MetaFile = NO_META
    room: FreeSpace | None = None
    checkpoints: Mapping[str, tuple[CheckpointFault, str]] = field(default_factory=dict)
    dir_links: Mapping[str, str] = field(default_factory=dict)
    followed_ids: Mapping[str, str | None] = field(default_factory=dict)
    odd_files: tuple[str, ...] = ()
    load_faults: tuple[LoadFault, ...] = ()
    denied: tuple[Denied, ...] = ()
    not_seen: tuple[str, ...] = ()
    leftovers: tuple[str, ...] = ()
    places: Mapping[str, Identity] = field(default_factory=dict)
    mounted: frozenset[str] = frozenset()
    mount_point: str | None = None
    file_system: str | None = None
    cannot: Mapping[str, str] | None = None
    fixed: Mapping[str, str] = field(default_factory=dict)

    @property
    def answers(self) -> bool:
        """Whether anything could be read from it. (A log dir that the broker gave up usually can be read.)"""
        return self.problem is None and (self.health is not Health.OFFLINE or self.given_up_by is not None)


@dataclass(frozen=True, slots=True)
class Emptied:
    """A stray, or a `current` directory, with records for which a broker reads a log start offset above the end of its
    log (`log_end`, None if unknown)."""

    path: str
    log_start_offset: int
    log_end: int | None
    current: bool = False


# Settings that we do not use, so a broker's command line may override its file for them.
_HARMLESS_PREFIXES = ("listeners", "advertised.", "ssl.", "sasl.", "num.", "socket.", "zookeeper.", "metric", "auto.")


def concerns_us(setting: str) -> bool:
    """Whether it matters to us that this setting is not what the configuration file says."""
    return not setting.startswith(_HARMLESS_PREFIXES)


CHANGED_HINT = (
    "kafka-configs.sh --bootstrap-server HOST:PORT --describe --all --entity-type brokers --entity-name ID shows what"
    " is in force; the next start takes the file"
)


@dataclass(frozen=True, slots=True)
class Override:
    """A setting on the command line of `who`, a process or a unit, which counts instead of the configuration's."""

    who: str
    setting: str


@dataclass(frozen=True, slots=True)
class StartFacts:
    """Everything that `check` decides on. `dirs`: the inventory of the log dirs that could be listed.

    user: the broker's user, in words. assigned: the partitions of this broker by name, empty if unknown. gone: (log
    dir, name) of directories that a KRaft broker will set aside because of their topic id; set_aside: the same of mount
    points, also those without topic id. wrong_directory: (log dir,
    name) of directories that are assigned to another log dir, with the detail of the verdict. homeless: those of them
    that may be the only copy, and are assigned to a `directory.id` that no log dir here has. open_exchanges: paths of
    what an interrupted `restore --replace` displaced, with the name it had before. overrides: settings in force that
    are not in the configuration. config_doubt: why what runs may differ from the configuration's file. failed_marks:
    directories that the broker could not mark for deletion since its last start, with the log that says so.
    about_to_start: any holder of a log dir prevents the start.
    missing: what is assigned to this node and has no directory in the log dirs that a start would use. taken: what has
    the name of such a directory, by path: what it is, and whether it is in the way for certain.
    missing_sure: no start knows better assignments than those that `missing` goes by.
    stale_cordons: what a dynamic `cordoned.log.dirs` names and `log.dirs` does not, with what takes it out.
    settings: what is set in `server.properties` and, for topics, in the metadata log, however old.
    """

    server: StartServerFacts
    log_dirs: tuple[StartLogDirFacts, ...]
    dirs: tuple[PartitionDir, ...] = ()
    user: str = ""
    assigned: AbstractSet[TopicPartition] = frozenset()
    gone: AbstractSet[DirKey] = frozenset()
    set_aside: AbstractSet[DirKey] = frozenset()
    wrong_directory: Mapping[DirKey, str] = field(default_factory=dict)
    homeless: AbstractSet[DirKey] = frozenset()
    open_exchanges: Mapping[str, str] = field(default_factory=dict)
    emptied: tuple[Emptied, ...] = ()
    overrides: tuple[Override, ...] = ()
    config_doubt: str | None = None
    failed_marks: Mapping[DirKey, str] = field(default_factory=dict)
    about_to_start: bool = False
    missing: Missing = NOTHING_MISSING
    taken: Mapping[str, tuple[str, bool]] = field(default_factory=dict)
    missing_sure: bool = False
    stale_cordons: Mapping[str, str] = field(default_factory=dict)
    settings: Layers = NOTHING_SET
    kafka_version: KafkaVersion = UNKNOWN_VERSION

    def needs(self, log_dir: StartLogDirFacts) -> bool:
        """Whether the node reads and writes it. A controller locks and loads its metadata log dir only; of its other
        log dirs it reads `meta.properties`, and goes on without it if it cannot."""
        return not self.server.controller_only or log_dir.holds_metadata
