"""What decides whether a broker starts, as seen in its configuration and its log dirs."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import StrEnum

from logagent.model.health.kafka_version import UNKNOWN_VERSION, KafkaVersion
from logagent.model.records import Health, Holder, HolderState, PartitionDir, TopicPartition

NOBODY = Holder(HolderState.FREE)


class Mode(StrEnum):
    KRAFT = "kraft"
    ZOOKEEPER = "zookeeper"


class PathProblem(StrEnum):
    """Why a configured path is not a directory that can be opened. MISSING: its last part does not exist."""

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
    """How an offset checkpoint is broken. MALFORMED is an `IOException` to Kafka, NUMBER another exception."""

    MALFORMED = "malformed"
    NUMBER = "number"


@dataclass(frozen=True, slots=True)
class StartServerLook:
    """What the broker's configuration says. `mode` is None and `log_dirs_text` too where there is none.

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
    """Room on a file system for an unprivileged user. `inodes` is 0 where the file system does not count them."""

    size: int
    free: int
    inodes: int
    inodes_free: int


@dataclass(frozen=True, slots=True)
class Denied:
    """Something the broker's user may not do: `wants` is `read`, `write`, `search` or several of them."""

    path: str
    wants: str
    owner: int
    group: int
    mode: int


@dataclass(frozen=True, slots=True)
class StartLogDirLook:
    """One log dir, or (`holds_logs` False) a `metadata.log.dir` apart from them.

    canonical: where the path leads. holder_is_broker: the holder is one Kafka broker that has every log dir, so the
    one that is meant (None: nobody holds it, or it cannot be told). given_up_by: the PID of the running broker, where
    it has the other log dirs and not this one. checkpoints: the broken ones with their error.
    dir_links: names of symlinks in it that lead to a directory. odd_files: `name of directory/file` that look like
    files of a segment, but have no offset before the suffix. not_seen: directories that we may
    not look into ourselves. leftovers: our own temp files.
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
        """Whether anything could be read of it. (One that the broker gave up can be, mostly.)"""
        return self.problem is None and (self.health is not Health.OFFLINE or self.given_up_by is not None)


@dataclass(frozen=True, slots=True)
class StartFacts:
    """Everything that `check` decides on. `dirs`: the inventory of the log dirs that could be listed.

    user: the broker's, in words. assigned: the partitions of this broker by name, empty where that is not known.
    gone: (log dir, name) that a KRaft broker will set aside for its topic id. wrong_directory: (log dir, name) whose
    assigned directory is another one, with what the verdict said. about_to_start: any holder at all stands in the way.
    """

    server: StartServerLook
    log_dirs: tuple[StartLogDirLook, ...]
    dirs: tuple[PartitionDir, ...] = ()
    user: str = ""
    assigned: AbstractSet[TopicPartition] = frozenset()
    gone: AbstractSet[tuple[str, str]] = frozenset()
    wrong_directory: Mapping[tuple[str, str], str] = field(default_factory=dict)
    about_to_start: bool = False
    kafka_version: KafkaVersion = UNKNOWN_VERSION
