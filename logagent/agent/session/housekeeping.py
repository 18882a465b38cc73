"""What the journal need not remember any more: failures of directories that no longer exist, and old settled rows."""

from __future__ import annotations

from logagent.agent.session.session import Session
from logagent.model.planning.queue import DAY_MS, forgettable
from logagent.model.records import Kind


def forget_failures_of_removed(session: Session) -> None:
    """After a full inventory: forget failed removals of directories that somebody else has removed.

    Failures in log dirs that could not be scanned stay. Raises JournalError.
    """
    failed = set(session.attempts())
    failed -= {key for d in session.dirs if (key := (d.log_dir, d.name)) in failed}
    scanned = _scanned(session)
    session.journal.clear_failures([key for key in failed if key[0] in scanned])


def forget_old_actions(session: Session) -> int:
    """After a full inventory: forget old settled actions that nothing needs; returns how many. Raises JournalError."""
    there = {d.inode for d in session.of_kind(Kind.STRAY, Kind.DELETE)}
    # A record of the last day counts as such even if it was written by the clock before a jump.
    a_day_ago = session.clock_watch.reaching_back(session.clock.now_ms() - DAY_MS)
    ids = forgettable(session.journal.settled(), there, _scanned(session), a_day_ago + DAY_MS)
    session.journal.forget(ids)
    return len(ids)


def _scanned(session: Session) -> frozenset[str]:
    """The directories that this inventory covers completely.

    An empty mount point does not count: without `meta.properties` it is unknown whose it is. A quarantine directory,
    which has none, counts only while no log dir is missing.
    """
    opened, strange = session.log_dirs.opened().keys() & session.inventories.keys(), session.log_dirs.cluster.problems
    whole = not strange and all(path in opened for path in session.target.log_dirs)
    return frozenset(path for path in opened if (whole if path in session.log_dirs.quarantine else path not in strange))
