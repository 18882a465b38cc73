"""The records that everything else passes around: small, slotted, without behaviour.

Units: `*_ns` are nanoseconds and `*_ms` milliseconds since the epoch (Kafka's own unit), `bytes` the sum of
file sizes, `allocated` the sum of `st_blocks * 512`. Names are `str` as `os.fsdecode` gives them: bytes that are
no UTF-8 appear as surrogate escapes and go back to disk unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What a directory in a log dir is, by its name."""

    CURRENT = "current"
    FUTURE = "future"
    STRAY = "stray"
    DELETE = "delete"
    METADATA = "metadata"
    CACHE = "cache"
    INVALID = "invalid"


class Verdict(StrEnum):
    ASSIGNED = "assigned"
    ORPHAN = "orphan"
    UNKNOWN = "unknown"


class Health(StrEnum):
    """State of a log dir. A `FULL` one is not offline: deleting is the cure."""

    ONLINE = "online"
    READ_ONLY = "read-only"
    FULL = "full"
    OFFLINE = "offline"
    UNFORMATTED = "unformatted"


class HolderState(StrEnum):
    """Who has the lock of a log dir.

    FREE: nobody. HELD: a broker that serves. STARTING: a broker that may still be loading (in doubt, this).
    HIDDEN: nobody has the lock, but a process has `.lock` (perhaps an unlinked one) or files below open.
    UNREADABLE: it cannot be told. Only FREE permits renames and removals of `-delete`.
    """

    FREE = "free"
    HELD = "held"
    STARTING = "starting"
    HIDDEN = "hidden"
    UNREADABLE = "unreadable"


class ActionKind(StrEnum):
    QUARANTINE = "quarantine"
    MARK = "mark"
    REMOVE = "remove"
    RESTORE = "restore"
    DROP_CHECKPOINT_ENTRY = "drop-checkpoint-entry"


class Outcome(StrEnum):
    DONE = "done"
    FAILED = "failed"
    YIELDED = "yielded"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Identity:
    """What makes a directory the one that was planned: (st_dev, st_ino)."""

    device: int
    inode: int


@dataclass(slots=True)
class PartitionDir:
    """One directory in a log dir, as an inventory saw it."""

    log_dir: str
    name: str
    kind: Kind
    topic: str | None
    partition: int | None
    uuid: str | None
    truncated: bool
    device: int
    inode: int
    ctime_ns: int
    mtime_ns: int
    topic_id: str | None = None
    bytes: int = 0
    allocated: int = 0
    files: int = 0
    segments: int = 0
    newest_mtime_ns: int = 0
    first_offset: int | None = None
    last_segment_offset: int | None = None
    error: str | None = None
    # It bears the mark on disk that a removal of it has begun.
    removal_begun: bool = False

    @property
    def identity(self) -> Identity:
        return Identity(self.device, self.inode)


@dataclass(frozen=True, slots=True)
class Holder:
    """`lock_open_by`: who has `.lock` open, an unlinked one too, without having the lock."""

    state: HolderState
    pid: int | None = None
    start_time_ms: int | None = None
    detail: str | None = None
    lock_open_by: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicPartition:
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
