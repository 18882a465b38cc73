"""What one scan of a log dir saw."""

from __future__ import annotations

from dataclasses import dataclass, field

from logagent.host.inventory.partition import Known
from logagent.model.records import Identity, Kind, PartitionDir

# Kinds whose bytes count as "other" in the ledger of the log dir, as do plain files and symlinks.
OTHER_KINDS = frozenset({Kind.METADATA, Kind.CACHE, Kind.INVALID})


@dataclass(slots=True)
class LogDirInventory:
    """What one scan of a log dir saw.

    dirs: every directory in it (and every symlink, with the error "symlink", because Kafka follows those), in the order
    of the listing. A directory that could not be read has its `error` set and only what is known about it. `allocated`
    includes the blocks of the directories themselves, as `du` counts; `newest_mtime_ns` is that of the newest segment's
    `.log` (Kafka appends to no other), or the directory's own if it has no segments. other_bytes, other_allocated:
    plain files, symlinks, and the directories of `OTHER_KINDS` (which are in `dirs` too), so used = sum over the other
    kinds + other + unexplained. size, used, free: the file system's, in bytes; `free` is what a user without privileges
    can still write. at_ns: when the scan began. read_in_full: how many directories were read in full (the others only
    as far as they can change). round, holder, holder_since_ns, known: for the next scan.
    """

    path: str
    identity: Identity
    at_ns: int
    dirs: list[PartitionDir] = field(default_factory=list)
    other_bytes: int = 0
    other_allocated: int = 0
    size: int = 0
    used: int = 0
    free: int = 0
    read_in_full: int = 0
    round: int = 0
    holder: tuple[bool, int | None] = (False, None)
    holder_since_ns: int = 0
    known: dict[str, Known] = field(default_factory=dict, repr=False)

    @property
    def errors(self) -> dict[str, str]:
        """The directories that could not be read completely, with the reason."""
        return {entry.name: entry.error for entry in self.dirs if entry.error is not None}
