"""Which directories marked for deletion are due, in which order, and when the next one is.

Mirrors the `logsToBeDeleted` queue of Kafka's LogManager, with the directory name as the durable entry. Deliberate
deviations: the delay does not restart with every start (the time of marking comes from the journal, else from the
directory's ctime); a failed removal stays queued and is retried with backoff; what the broker marked is left to the
broker for `cleanup.leftover_grace` beyond its own delay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from logagent.model.planning.started import RemovalIntents, removal_begun
from logagent.model.records import PartitionDir

BACKOFF_FIRST_MS = 1_000
BACKOFF_MOST_MS = 3_600_000

Owner = Literal["broker", "logagent"]


@dataclass(frozen=True, slots=True)
class Mark:
    """What the journal knows about one of our renames: when (ms), and what the new name no longer shows.

    `old_name`: the exact name before: `zzz-01` is partition 1 too, and is restored as `zzz-01`. `original_dir`: the log
    dir that it was quarantined from (its path then), if it was moved to another directory. `reason`: why it was an
    orphan then, if it still has the same topic id. `intact`: the broker had stopped cleanly before the rename, and it
    never had a `-delete` name since. `ordered`: an order of the fleet renamed it. `files_with_bit`: how many files it
    had when we took its current name, if it had the mode bit then that marks the start of a removal.
    """

    at_ms: int
    full_topic: str | None
    old_name: str | None = None
    approved: bool = False
    action_id: int | None = None
    original_dir: str | None = None
    reason: str | None = None
    intact: bool = False
    ordered: bool = False
    files_with_bit: int | None = None


@dataclass(frozen=True, slots=True)
class Attempts:
    """Removals that failed so far."""

    count: int
    last_at_ms: int
    last_error: str


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """A marked directory in the queue. Times in ms."""

    dir: PartitionDir
    owner: Owner
    marked_at_ms: int
    due_at_ms: int
    full_topic: str | None
    approved: bool = False
    removal_started: bool = False
    attempts: Attempts | None = None


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
    marks: Mapping[tuple[str, str], Mark],
    failures: Mapping[tuple[str, str], Attempts],
    removal_intents: RemovalIntents,
    *,
    delay_ms: int,
    leftover_grace_ms: int,
    corrected: Corrected = as_written,
) -> list[QueueEntry]:
    """All marked directories in the order in which they fall due (then by time of marking, log dir and name).

    A removal that has begun (`removal_begun`) has waited its delay: it is due at once, except for the backoff after a
    failure.
    """
    entries = []
    for directory in marked:
        key = (directory.log_dir, directory.name)
        mark, failed = marks.get(key), failures.get(key)
        at = marked_at_ms(directory, mark, corrected)
        owner: Owner = "broker" if mark is None else "logagent"
        begun = removal_begun(directory, removal_intents)
        due = at if begun else at + delay_ms + (leftover_grace_ms if owner == "broker" else 0)
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
                removal_started=begun,
                attempts=failed,
            )
        )
    entries.sort(key=lambda e: (e.due_at_ms, e.marked_at_ms, e.dir.log_dir, e.dir.name))
    return entries


def due(queue: Iterable[QueueEntry], now_ms: int) -> list[QueueEntry]:
    """The entries that are due. One that was marked in the future (the clock was set back) is not."""
    return [e for e in queue if max(e.due_at_ms, e.marked_at_ms) <= now_ms]
