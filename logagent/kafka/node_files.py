"""What the files say that a node reads when it starts, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

BOOTSTRAP = "bootstrap.checkpoint"
DEFAULT_RESERVED_MAX_ID = 1000


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


class MetadataFile(StrEnum):
    """A file in a metadata log dir that a KRaft node reads when it starts."""

    QUORUM_STATE = "quorum-state"
    EPOCHS = "leader-epoch-checkpoint"
    TOPIC_ID = "partition.metadata"
    SNAPSHOT = "snapshot"
    FIRST_SNAPSHOT = "first-snapshot"
    LOST_SNAPSHOT = "lost-snapshot"
    BOOTSTRAP = "bootstrap.checkpoint"
    SNAPSHOT_END = "end-of-snapshot"
    ODD_NAME = "odd-name"
    VOTERS = "voters"
    DYNAMIC = "dynamic-quorum"
    DIRECTORY_ID = "directory-id"


@dataclass(frozen=True, slots=True)
class MetadataFault:
    """One of these that Kafka cannot read. `name`: its path below the metadata log dir. `refused`: Kafka raises
    something else than an `IOException`. `spare`: a start does without the file, if it is not there."""

    file: MetadataFile
    name: str
    error: str
    refused: bool = False
    spare: bool = True


FeatureLevels = Mapping[str, tuple[int, ...]]
"""By feature, each level that records give it, the one that is finalised now last."""


@dataclass(frozen=True, slots=True)
class StartLevels:
    """The features in the files that a KRaft node reads when it starts.

    log: of the newest metadata snapshot and the log after it. bootstrap: of `bootstrap.checkpoint`. formatted: of the
    snapshot that `kafka-storage format` of 4.4 and later writes instead, while that is all there is. unread: why not
    all of it could be read. empty: no metadata record has been written yet.
    """

    log: FeatureLevels = field(default_factory=dict)
    bootstrap: FeatureLevels = field(default_factory=dict)
    formatted: FeatureLevels = field(default_factory=dict)
    unread: str | None = None
    empty: bool = False


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
