"""What the journal need not remember any more: failures of directories that are gone, and settled rows that are old."""

from __future__ import annotations

from logagent.agent.session import Session


def forget_failures_of_the_gone(session: Session) -> None:
    """After a whole inventory: failed removals of directories that somebody else removed meanwhile.

    Those in log dirs that could not be scanned stay. Raises JournalError.
    """
    failed = set(session.attempts())
    failed -= {key for d in session.dirs if (key := (d.log_dir, d.name)) in failed}
    session.journal.clear_failures([key for key in failed if key[0] in session.inventories])
