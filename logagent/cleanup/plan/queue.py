"""Which directories marked for deletion are due, in which order, and when the next one is.

Mirrors the `logsToBeDeleted` queue of Kafka's LogManager, with the directory name as the durable entry. Deliberate
deviations: the delay does not restart with every start (the time of marking comes from the journal, else from the
directory's ctime); a failed removal stays queued and is retried with backoff; what the broker marked is left to the
broker for `cleanup.leftover_grace` beyond its own delay.

Whether part of a directory is gone: what the mark on disk, the journal and the number of files say together.

The mark alone says nothing: it is a mode bit, and `chmod -R ug+s` sets it everywhere. An intent in the journal alone
says nothing either, it may have come to nothing. So a removal has started if both are there and segments are missing
since the intent; only then does it go on unasked. Restoring asks more: everything must still be there.

What the journal may forget: old settled actions on directories that no longer exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from logagent.base.records import DirKey, Health, Kind, PartitionDir, Reason
from logagent.base.units import DAY_MS
from logagent.verdict.clock_doubt import ClockDoubt, ClockJump, corrected
from logagent.verdict.facts import LogDirFacts
from logagent.verdict.marks import Contents, Mark, Sighting


@dataclass(frozen=True, slots=True)
class RemovalIntent(Contents):
    """One removal that was meant, and what the directory had then. `is_of_copy`: it was meant for a directory of the
    same unique name and another inode: this one is a copy of it, or the other way round."""

    is_of_copy: bool = False


RemovalIntents = Mapping[DirKey, Sequence[RemovalIntent]]
NO_REMOVALS: RemovalIntents = MappingProxyType({})


def removal_has_started(d: PartitionDir, intents: RemovalIntents) -> bool:
    """Whether part of `d` is gone because we removed it: the mark that comes before the first unlink, an intent of this
    journal (`intents`, by log dir and name), and fewer files than then. Not of a copy: that waits like any other."""
    meant = (intent for intent in intents.get(d.key, ()) if not intent.is_of_copy)
    return d.removal_started and any(intent.have_shrunk(d) for intent in meant)


_COPY_WHAT_IS_LEFT = (
    "it cannot be made whole again: copy what is left of it elsewhere before its removal continues, if that may be the"
    " only copy"
)


def why_not_whole(d: PartitionDir, intents: RemovalIntents, mark: Mark | None) -> Reason | None:
    """Why `d` may not be restored; None if it may. What this journal meant to remove, or had set aside (`mark`), counts
    without the mark of a removal, too: a copy (`cp -r`) has none, and a journal that was put back may be older than the
    removal. With that mark it is whole only if no removal has set it."""
    meant = intents.get(d.key, ())
    if meant and not all(intent.are_all_in(d) for intent in meant):
        most = max(intent.files or 0 for intent in meant)
        started = any(intent.have_shrunk(d) for intent in meant)
        left = f"{d.files} of {most} files are left" if started else "some of its records may be gone"
        return Reason(f"its removal has started: {left}", _COPY_WHAT_IS_LEFT)
    if mark is not None and mark.lacks_some(d):
        had = f"{mark.had.segments} segments with {mark.had.log_bytes} bytes" if mark.had is not None else "more"
        now = f"{d.segments} with {d.segment_bytes}"
        return Reason(f"it had {had} when it was set aside, and has {now}: some was removed", _COPY_WHAT_IS_LEFT)
    if meant or not d.removal_started:
        return None
    if mark is not None and mark.had_bit and mark.had is not None and mark.had.are_all_in(d):
        return None
    return Reason(
        "its set-user-ID bit says that its removal has started, but this journal knows of none: either files of it are"
        " gone, or somebody ran chmod -R ug+s",
        "copy it elsewhere before anything removes it, and read its records from that copy (kafka-dump-log.sh)",
    )


BACKOFF_FIRST_MS = 1_000
BACKOFF_MOST_MS = 3_600_000

Owner = Literal["broker", "logagent"]


def for_removal(marks: Mapping[DirKey, Mark]) -> dict[DirKey, Mark]:
    """Those that count for a removal: of the very directories that were renamed."""
    return {key: mark for key, mark in marks.items() if not mark.is_of_copy}


@dataclass(frozen=True, slots=True)
class Attempts:
    """Removals that failed so far."""

    count: int
    last_at_ms: int
    last_error: str


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """A marked directory in the queue. Times in ms. `due_at_ms`: when we remove it; `broker_delay_ms`: how long a
    running broker keeps it."""

    dir: PartitionDir
    owner: Owner
    marked_at_ms: int
    due_at_ms: int
    full_topic: str | None
    approved: bool = False
    removal_started: bool = False
    attempts: Attempts | None = None
    broker_delay_ms: int = 0

    def goes_at_ms(self, where: LogDirFacts | None) -> int:
        """When it is removed, beside a running broker by that."""
        by_broker_ms = self.by_broker_ms(where)
        return by_broker_ms if by_broker_ms is not None else self.due_at_ms

    def by_broker_ms(self, where: LogDirFacts | None) -> int | None:
        """When a running broker removes it: its own delay after it was marked, or after a start, which queues
        everything that is marked anew (`LogManager.loadLog`). None if none runs there."""
        if where is None or where.health is Health.OFFLINE or not where.holder.state.is_broker:
            return None
        return max(self.marked_at_ms, where.holder.start_time_ms or 0) + self.broker_delay_ms


def backoff_ms(attempts: int) -> int:
    """How long to wait after the `attempts`-th failed removal: 1 s, doubling each time, at most an hour."""
    return min(BACKOFF_FIRST_MS << min(attempts - 1, 30), BACKOFF_MOST_MS) if attempts > 0 else 0


Corrected = Callable[[int], int]


def as_written(at_ms: int) -> int:
    return at_ms


def marked_at_ms(directory: PartitionDir, mark: Mark | None, corrected: Corrected = as_written) -> int:
    """The journal's time, else the directory's ctime: on Linux file systems a rename sets it (and leaves mtime).

    A ctime before the last write comes from a wrong clock (a host that boots in 1970 sets its strays aside before it
    learns the time): then the last write counts. corrected: translates a recorded time to today's clock.
    """
    if mark is not None:
        return corrected(mark.at_ms)
    return corrected(max(directory.ctime_ns, directory.mtime_ns, directory.newest_mtime_ns) // 1_000_000)


def full_topic(directory: PartitionDir, mark: Mark | None) -> str | None:
    """The full topic name: the journal's, else the parsed one unless its end may have been cut off (then None)."""
    if mark is not None and mark.full_topic is not None:
        return mark.full_topic
    return None if directory.truncated else directory.topic


def build_queue(
    marked: Iterable[PartitionDir],
    marks: Mapping[DirKey, Mark],
    failures: Mapping[DirKey, Attempts],
    removal_intents: RemovalIntents,
    *,
    delay_ms: int,
    leftover_grace_ms: int,
    broker_delay_ms: int | None = None,
    corrected: Corrected = as_written,
) -> list[QueueEntry]:
    """All marked directories in the order in which they fall due (then by time of marking, log dir and name).

    A removal that has started (`removal_has_started`) has waited its delay: it is due at once, except for the backoff
    after a failure. `broker_delay_ms`: the broker's own, if ours differs.
    """
    entries = []
    for directory in marked:
        key = directory.key
        mark, failed = marks.get(key), failures.get(key)
        at = marked_at_ms(directory, mark, corrected)
        owner: Owner = "broker" if mark is None else "logagent"
        started = removal_has_started(directory, removal_intents)
        due = at if started else at + delay_ms + (leftover_grace_ms if owner == "broker" else 0)
        if failed is not None:
            due = max(due, failed.last_at_ms + backoff_ms(failed.count))
        entries.append(
            QueueEntry(
                dir=directory,
                owner=owner,
                marked_at_ms=at,
                due_at_ms=due,
                full_topic=full_topic(directory, mark),
                approved=mark is not None and mark.approved,
                removal_started=started,
                attempts=failed,
                broker_delay_ms=delay_ms if broker_delay_ms is None else broker_delay_ms,
            )
        )
    entries.sort(key=lambda e: (e.due_at_ms, e.marked_at_ms, e.dir.log_dir, e.dir.name))
    return entries


@dataclass(frozen=True, slots=True)
class Recalled:
    """What the journal says of the directories of one inventory, from one reading. `marks`: how each got its present
    name; `removal_intents`: the removals that were meant; `failures`: those that failed; `sightings`: of earlier
    cycles, by today's clock. `jumps` of the clock that an operator accepted; `doubt`: why no age can be trusted now."""

    marks: Mapping[DirKey, Mark] = field(default_factory=dict)
    removal_intents: RemovalIntents = field(default_factory=dict)
    failures: Mapping[DirKey, Attempts] = field(default_factory=dict)
    sightings: Mapping[DirKey, Sighting] = field(default_factory=dict)
    jumps: tuple[ClockJump, ...] = ()
    doubt: ClockDoubt | None = None

    def corrected(self, at_ms: int) -> int:
        """A recorded time, converted to the current clock."""
        return corrected(at_ms, self.jumps)


def queue_of(
    dirs: Iterable[PartitionDir], recalled: Recalled, *, delay_ms: int, leftover_grace_ms: int, broker_delay_ms: int
) -> list[QueueEntry]:
    """The queue of a whole inventory (`build_queue`)."""
    return build_queue(
        (d for d in dirs if d.kind is Kind.DELETE),
        for_removal(recalled.marks),
        recalled.failures,
        recalled.removal_intents,
        delay_ms=delay_ms,
        leftover_grace_ms=leftover_grace_ms,
        broker_delay_ms=broker_delay_ms,
        corrected=recalled.corrected,
    )


KEEP_MS = 90 * DAY_MS
# At most this many unneeded rows are kept, however recent (some 40 MB).
MOST_ROWS = 100_000


@dataclass(frozen=True, slots=True)
class SettledAction:
    """One settled row of the journal. `places`: the log or quarantine dirs concerned (two, for some quarantines).

    attempt: the name of the directory, if this was a removal that failed or was left for later.
    """

    id: int
    at_ms: int
    places: tuple[str, ...]
    inode: int
    attempt: str | None = None


def forgettable(
    rows: Iterable[SettledAction],
    there: AbstractSet[int],
    scanned: AbstractSet[str],
    now_ms: int,
    *,
    keep_ms: int = KEEP_MS,
    most_rows: int = MOST_ROWS,
) -> list[int]:
    """The ids of the rows that may be forgotten.

    there: inodes of the -stray and -delete directories in a complete inventory, and of those that they are copies of
    (`Journal.inodes_of`); every row on one of them is needed (its full name, its time of marking, its checkpoint
    entries, what it had before its removal started), under all names it had. scanned: the log dirs of that inventory;
    rows on others are kept, as those may come back. The last 24 hours (and times in the future, from a wrong clock) are
    kept for the blast radius.

    Of the attempts to remove a directory, of which there can be one an hour forever, only the last is kept, on any log
    dir, and the first, which says what it had before any of them took something.
    """
    old = [r for r in rows if r.at_ms < now_ms - DAY_MS]
    attempts: dict[tuple[object, ...], list[int]] = {}
    for r in old:
        if r.attempt is not None:
            attempts.setdefault((r.places, r.attempt, r.inode), []).append(r.id)
    repeated = {number for ids in attempts.values() for number in sorted(ids)[1:-1]}
    free = [
        r for r in old if r.id not in repeated and r.inode not in there and all(place in scanned for place in r.places)
    ]
    free.sort(key=lambda r: (r.at_ms, r.id))
    surplus = max(len(free) - most_rows, 0)
    return sorted(repeated) + [r.id for n, r in enumerate(free) if n < surplus or r.at_ms < now_ms - keep_ms]
