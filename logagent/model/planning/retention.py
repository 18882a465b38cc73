"""What the journal may forget: old settled actions on directories that no longer exist."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

DAY_MS = 86_400_000
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

    there: inodes of the -stray and -delete directories in a complete inventory; every row on one of them is needed (its
    full name, its time of marking, its checkpoint entries, that its removal has started), under all names it had.
    scanned: the log dirs of that inventory; rows on others are kept, as those may come back. The last 24 hours (and
    times in the future, from a wrong clock) are kept for the blast radius.

    Of the attempts to remove a directory, of which there can be one an hour forever, only the last is kept, on any log
    dir.
    """
    old = [r for r in rows if r.at_ms < now_ms - DAY_MS]
    last: dict[tuple[object, ...], int] = {}
    for r in old:
        if r.attempt is not None:
            key = (r.places, r.attempt, r.inode)
            last[key] = max(r.id, last.get(key, r.id))
    repeated = {r.id for r in old if r.attempt is not None and r.id < last[r.places, r.attempt, r.inode]}
    free = [
        r for r in old if r.id not in repeated and r.inode not in there and all(place in scanned for place in r.places)
    ]
    free.sort(key=lambda r: (r.at_ms, r.id))
    surplus = max(len(free) - most_rows, 0)
    return sorted(repeated) + [r.id for n, r in enumerate(free) if n < surplus or r.at_ms < now_ms - keep_ms]
