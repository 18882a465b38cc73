"""The facts that decide whether a broker starts, from its configuration and its log dirs."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import StrEnum

from logagent.model.kafka_version import UNKNOWN_VERSION, KafkaVersion
from logagent.model.records import DirKey, Health, Holder, HolderState, PartitionDir, TopicPartition

NOBODY = Holder(HolderState.FREE)


class Mode(StrEnum):
    KRAFT = "kraft"
    ZOOKEEPER = "zookeeper"


class PathProblem(StrEnum):
    """Why a configured path cannot be opened as a directory. MISSING: its last component does not exist."""

    MISSING = "missing"
    DANGLING = "dangling"
    NOT_A_DIRECTORY = "not-a-directory"
    UNREADABLE = "unreadable"


class MetaState(StrEnum):
    """State of a `meta.properties`. MALFORMED: it exists, but no broker can parse it."""

    READ = "read"
    MISSING = "missing"
    MALFORMED = "malformed"
    UNREADABLE = "unreadable"


class CheckpointFault(StrEnum):
    """How an offset checkpoint is broken. MALFORMED raises an `IOException` in Kafka, NUMBER another exception."""

    MALFORMED = "malformed"
    NUMBER = "number"


@dataclass(frozen=True, slots=True)
class StartServerLook:
    """The broker's configuration. Without one, `mode` and `log_dirs_text` are None.

    log_dirs_text: the value of `log.dirs` (or `log.dir`) as written. metadata_log_dir: None in ZooKeeper mode.
    """

    mode: Mode | None = None
    node_id: int | None = None
    log_dirs_text: str | None = None
    metadata_log_dir: str | None = None
    config: str | None = None


@dataclass(frozen=True, slots=True)
class MetaFile:
    state: MetaState
    version: int | None = None
    cluster_id: str | None = None
    node_id: int | None = None
    directory_id: str | None = None
    error: str | None = None


NO_META = MetaFile(MetaState.MISSING)


@dataclass(frozen=True, slots=True)
class Room:
    """Space on a file system for an unprivileged user. `inodes` is 0 if the file system does not count them."""

    size: int
    free: int
    inodes: int
    inodes_free: int


@dataclass(frozen=True, slots=True)
class Denied:
    """Access that the broker's user lacks: `wants` is `read`, `write`, `search` or several of them."""

    path: str
    wants: str
    owner: int
    group: int
    mode: int


@dataclass(frozen=True, slots=True)
class StartLogDirLook:
    """One log dir, or (`holds_logs` False) a separate `metadata.log.dir`.

    canonical: the path with symlinks resolved. holder_is_broker: whether the holder is a Kafka broker that holds every
    log dir, so the broker in question (None: nobody holds it, or that is unknown). given_up_by: the PID of the running
    broker, if it holds the other log dirs but not this one. checkpoints: the broken ones with their error. dir_links:
    symlinks in it that lead to a directory, with their targets. odd_files: `DIRECTORY/FILE` of files named like segment
    files but without an offset before the suffix. not_seen: directories that we are not permitted to read. leftovers:
    our own temp files.
    """

    path: str
    canonical: str | None = None
    holds_logs: bool = True
    problem: PathProblem | None = None
    detail: str | None = None
    health: Health = Health.ONLINE
    holder: Holder = NOBODY
    holder_is_broker: bool | None = None
    given_up_by: int | None = None
    meta: MetaFile = NO_META
    room: Room | None = None
    checkpoints: Mapping[str, tuple[CheckpointFault, str]] = field(default_factory=dict)
    dir_links: Mapping[str, str] = field(default_factory=dict)
    odd_files: tuple[str, ...] = ()
    denied: tuple[Denied, ...] = ()
    not_seen: tuple[str, ...] = ()
    leftovers: tuple[str, ...] = ()

    @property
    def answers(self) -> bool:
        """Whether anything could be read from it. (A log dir that the broker gave up usually can be read.)"""
        return self.problem is None and (self.health is not Health.OFFLINE or self.given_up_by is not None)


@dataclass(frozen=True, slots=True)
class Emptied:
    """A stray with records for which a broker reads a log start offset above the end of its log (`log_end`, None if
    unknown)."""

    path: str
    log_start_offset: int
    log_end: int | None


@dataclass(frozen=True, slots=True)
class StartFacts:
    """Everything that `check` decides on. `dirs`: the inventory of the log dirs that could be listed.

    user: the broker's user, in words. assigned: the partitions of this broker by name, empty if unknown. gone: (log
    dir, name) of directories that a KRaft broker will set aside because of their topic id. wrong_directory: (log dir,
    name) of directories that are assigned to another log dir, with the detail of the verdict. open_exchanges: paths of
    what an interrupted `restore --replace` displaced, with the name it had before. about_to_start: any holder of a log
    dir prevents the start.
    """

    server: StartServerLook
    log_dirs: tuple[StartLogDirLook, ...]
    dirs: tuple[PartitionDir, ...] = ()
    user: str = ""
    assigned: AbstractSet[TopicPartition] = frozenset()
    gone: AbstractSet[DirKey] = frozenset()
    wrong_directory: Mapping[DirKey, str] = field(default_factory=dict)
    open_exchanges: Mapping[str, str] = field(default_factory=dict)
    emptied: tuple[Emptied, ...] = ()
    about_to_start: bool = False
    kafka_version: KafkaVersion = UNKNOWN_VERSION
