"""What the journal need not remember any more: failures of directories that are gone, and settled rows that are old."""

from __future__ import annotations

from logagent.agent.session.session import Session
from logagent.model.planning.retention import DAY_MS, forgettable
from logagent.model.records import Kind


def forget_failures_of_the_gone(session: Session) -> None:
    """After a whole inventory: failed removals of directories that somebody else removed meanwhile.

    Those in log dirs that could not be scanned stay. Raises JournalError.
    """
    failed = set(session.attempts())
    failed -= {key for d in session.dirs if (key := (d.log_dir, d.name)) in failed}
    scanned = _scanned(session)
    session.journal.clear_failures([key for key in failed if key[0] in scanned])


def forget_old_actions(session: Session) -> int:
    """After a whole inventory: settled actions that are old and that nothing needs. How many; raises JournalError."""
    there = {d.inode for d in session.of_kind(Kind.STRAY, Kind.DELETE)}
    # What the clock before a jump wrote down of the last day is of the last day.
    a_day_ago = session.clock_watch.reaching_back(session.clock.now_ms() - DAY_MS)
    ids = forgettable(session.journal.settled(), there, _scanned(session), a_day_ago + DAY_MS)
    session.journal.forget(ids)
    return len(ids)


def _scanned(session: Session) -> frozenset[str]:
    """The directories of which this inventory was whole.

    Not an empty mount point: without `meta.properties` it cannot be told whose it is, and of a quarantine directory,
    which has none, only as long as no log dir is missing.
    """
    opened, strange = session.log_dirs.opened().keys() & session.inventories.keys(), session.log_dirs.cluster.problems
    whole = not strange and all(path in opened for path in session.target.log_dirs)
    return frozenset(path for path in opened if (whole if path in session.log_dirs.quarantine else path not in strange))
