"""The records that everything else passes around: small, slotted, without behaviour.

Units: `*_ns` are nanoseconds and `*_ms` milliseconds since the epoch (Kafka's own unit), `bytes` the sum of
file sizes, `allocated` the sum of `st_blocks * 512`. Names are `str` as `os.fsdecode` returns them: bytes that are
not UTF-8 appear as surrogate escapes and go back to disk unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, NamedTuple

from logagent.base.claims import Held


class Kind(StrEnum):
    """The kind of a directory in a log dir, from its name."""

    CURRENT = "current"
    FUTURE = "future"
    STRAY = "stray"
    DELETE = "delete"
    METADATA = "metadata"
    CACHE = "cache"
    INVALID = "invalid"


LIVE_KINDS = (Kind.CURRENT, Kind.FUTURE)
"""What a broker may serve: current logs, and future ones, of moves between log dirs."""
LOADED_KINDS = (*LIVE_KINDS, Kind.STRAY, Kind.DELETE)
"""What a broker loads when it starts (`LogManager.loadLog`)."""


class Verdict(StrEnum):
    ASSIGNED = "assigned"
    ORPHAN = "orphan"
    UNKNOWN = "unknown"


class Health(StrEnum):
    """State of a log dir. `FULL` does not count as offline, since deleting helps."""

    ONLINE = "online"
    READ_ONLY = "read-only"
    FULL = "full"
    OFFLINE = "offline"
    UNFORMATTED = "unformatted"


class HolderState(StrEnum):
    """Who has the lock of a log dir.

    FREE: nobody. HELD: a serving broker. STARTING: a broker that may still be loading (also if in doubt).
    HIDDEN: nobody has the lock, but a process has `.lock` (perhaps an unlinked one) or files in the log dir open.
    UNREADABLE: unknown. Only FREE permits renames and removals of `-delete`.
    """

    FREE = "free"
    HELD = "held"
    STARTING = "starting"
    HIDDEN = "hidden"
    UNREADABLE = "unreadable"

    @property
    def is_broker(self) -> bool:
        """A broker has the lock."""
        return self in (HolderState.HELD, HolderState.STARTING)


class ActionKind(StrEnum):
    QUARANTINE = "quarantine"
    MARK = "mark"
    REMOVE = "remove"
    RESTORE = "restore"
    REMOVE_LEFTOVERS = "remove-leftovers"
    DROP_CHECKPOINT_ENTRY = "drop-checkpoint-entry"


class Outcome(StrEnum):
    DONE = "done"
    FAILED = "failed"
    YIELDED = "yielded"
    SKIPPED = "skipped"


def in_64_bits(number: int) -> int:
    """A size or a time (ns) as the journal can hold it: some file systems have times after the year 2262, and the sizes
    of sparse files add up to more."""
    return max(-(1 << 63), min(number, (1 << 63) - 1))


@dataclass(frozen=True, slots=True)
class Identity:
    """Identifies a directory across renames: (st_dev, st_ino)."""

    device: int
    inode: int


@dataclass(frozen=True, slots=True)
class Denied:
    """Access that the broker's user lacks: `wants` is `read`, `write`, `search` or several of them."""

    path: str
    wants: str
    owner: int
    group: int
    mode: int


@dataclass(frozen=True, slots=True)
class RemovedFile:
    """A file without a name that process `pid` keeps as its descriptor `fd`: its blocks are freed, and its content is
    gone, when the last process closes it. `path`: what it was called, relative to the log dir, or absolute if its
    directory had been moved out of the log dir. `bytes`: its size."""

    path: str
    pid: int
    fd: int
    identity: Identity
    bytes: int
    allocated: int

    @property
    def descriptor(self) -> str:
        """What can be copied as long as the process has it open."""
        return f"/proc/{self.pid}/fd/{self.fd}"


class DirKey(NamedTuple):
    """Where a directory is: its log dir and its name there. It says nothing about which directory that is: after a
    rename or a removal another one may have the name, so whatever acts compares `Identity` too."""

    log_dir: str
    name: str


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
    # Of `bytes`, those of everything but the segments' `.log`: a broker that loads the directory changes them.
    beside_log_bytes: int = 0
    newest_mtime_ns: int = 0
    first_offset: int | None = None
    last_segment_offset: int | None = None
    error: str | None = None
    # It has the mode bit that marks the start of a removal: alone a sign, no proof (`cleanup.plan.queue`).
    removal_started: bool = False
    # The journal id of the restore that gave it its name; earlier approvals of it no longer apply.
    restored_by: int | None = None
    # It contains only regular files with a single link; valid as long as its mtime is `mtime_ns`.
    plain: bool = False

    @property
    def identity(self) -> Identity:
        return Identity(self.device, self.inode)

    @property
    def key(self) -> DirKey:
        return DirKey(self.log_dir, self.name)

    @property
    def segment_bytes(self) -> int:
        """The bytes of the segments' `.log` files."""
        return self.bytes - self.beside_log_bytes


def id_unread(d: PartitionDir) -> bool:
    """Whether its topic id was not read: it may have any, which is not the same as having none, or another one."""
    return d.topic_id is None and d.error is not None


@dataclass(frozen=True, slots=True)
class Holder:
    """`lock_open_by`: the PIDs that have `.lock` (even an unlinked one) open without holding the lock. `shared_lock`:
    who has a shared lock on it, in words; that is not a broker, but no broker can start meanwhile. `serving`: who says
    that it serves this log dir, and since when (ms); a claim of this process alone (`base.claims`)."""

    state: HolderState
    pid: int | None = None
    start_time_ms: int | None = None
    detail: str | None = None
    lock_open_by: tuple[int, ...] = ()
    shared_lock: str | None = None
    serving: Held | None = None

    @property
    def in_words(self) -> str:
        """Who has the lock, and what that means for a start. A lock without a process number is not taken for our own
        broker's: that a broker holds it has to be shown by something else."""
        if self.pid is None:
            return (
                "held by a process that is not visible here (another container, or an NFS lock of a dead client):"
                " a start now fails"
            )
        return f"process {self.pid} holds the lock: a broker started now exits at once"


class LogDoubt(NamedTuple):
    """Why the metadata log on this host proves less than that of a tested release. `proves`: "all" (only features were
    not tested that say nothing of partitions, as far as is known), "removals" or "nothing". `hint`: what helps."""

    proves: Literal["all", "removals", "nothing"]
    says: str
    hint: str


@dataclass(frozen=True, slots=True)
class TopicPartition:
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
